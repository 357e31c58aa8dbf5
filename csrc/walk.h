// SPDX-License-Identifier: Apache-2.0
// A walk over the outer digits of a recipe and the pieces of its kernel, entered anywhere and then stepped.
#pragma once

#include <array>
#include <cstdint>

#include "recipe.h"

namespace layout_kernels {

class Walk {
 public:
  // Items of work are numbered outer digits first, then `pieces`, the last of which runs fastest.
  Walk(const Recipe& recipe, std::array<int64_t, 2> pieces, int64_t item)
      : outer_(recipe.outer), pieces_(pieces) {
    for (size_t i = 2; i-- > 0; item /= pieces_[i]) piece_[i] = item % pieces_[i];
    for (size_t i = outer_.size(); i-- > 0; item /= outer_[i].extent) {
      index_[i] = item % outer_[i].extent;
      source_ += index_[i] * outer_[i].source;
      target_ += index_[i] * outer_[i].target;
    }
  }

  int64_t source() const { return source_; }
  int64_t target() const { return target_; }
  int64_t piece(size_t i) const { return piece_[i]; }

  void step() {
    for (size_t i = 2; i-- > 0; piece_[i] = 0)
      if (++piece_[i] < pieces_[i]) return;
    for (size_t i = outer_.size(); i-- > 0;) {
      const Digit& digit = outer_[i];
      source_ += digit.source;
      target_ += digit.target;
      if (++index_[i] < digit.extent) return;
      source_ -= digit.extent * digit.source;
      target_ -= digit.extent * digit.target;
      index_[i] = 0;
    }
  }

 private:
  const std::vector<Digit>& outer_;
  std::array<int64_t, 2> pieces_;
  std::array<int64_t, 2> piece_{};
  std::array<int64_t, max_rank> index_;
  int64_t source_ = 0, target_ = 0;
};

}  // namespace layout_kernels

// SPDX-License-Identifier: Apache-2.0
// A recipe is a shape brought into the form of one of a few kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "cast.h"
#include "lines.h"
#include "table.h"

namespace layout_kernels {

enum class Kind {
  rows,   // the same digit runs fastest on both sides: runs, rows of runs, strided rows
  tiles,  // one digit runs fastest in the source, another in the target: a transpose
  split,  // pairs that lie side by side in the source go to two streams
  merge,  // two streams meet as pairs that lie side by side in the target
};

// A few digits walked as one, so that they are contiguous on the near side (source for `across`, target for
// `down`): position p lies at p * near on that side and at far(p) on the other.
class Chain {
 public:
  struct Link {
    int64_t extent, near, far;
  };

  Chain() = default;
  explicit Chain(const Link& first)
      : length_(first.extent), near_(first.near), far_(first.far), far_steps_(first.far) {}

  // Takes a digit that continues the chain; false where it does not.
  bool grow(const Link& link);

  int64_t length() const { return length_; }
  int64_t near() const { return near_; }
  bool linear() const { return offsets_.empty(); }
  int64_t far_step() const { return far_; }         // of the first digit
  int64_t far_steps() const { return far_steps_; }  // of all digits, ored
  int64_t far(int64_t position) const {
    return offsets_.empty() ? position * far_ : offsets_[static_cast<size_t>(position)];
  }

 private:
  int64_t length_ = 1, near_ = 0, far_ = 0, far_steps_ = 0;
  std::vector<int64_t> offsets_;  // of every position, once the chain is longer than one digit
};

struct Recipe {
  Kind kind = Kind::rows;
  Cast cast;
  CastRow cast_row = nullptr;
  int64_t source_unit = 1;  // bytes that move as one; the two differ only under a cast
  int64_t target_unit = 1;
  int64_t elements = 0;      // units in the whole shape
  std::vector<Digit> outer;  // the loops around the kernel, outermost first
  Digit inner{1, 0, 0};      // rows, split, merge: the loop of the kernel (in pairs for the latter two)
  Chain across, down;        // tiles: fastest in the source, fastest in the target
  int64_t segment = 1;       // how much of `inner` or `across` one item of work takes
  int64_t strip = 1;         // how much of `down` one item of work takes
  WriteLines write_lines = nullptr;  // tiles of whole vectors; null where elements must move one by one
  int64_t other = 0;  // split: from the first target stream to the second; merge: of the sources
  int64_t target_steps =
      0;  // all steps of the target outside contiguous pieces, ored: tells how they are aligned

  int64_t nbytes() const { return elements * target_unit; }
};

constexpr size_t max_rank = 32;  // after neighbours have merged; bounds the state of a walk

Recipe copy_recipe(const Shape& shape);
Recipe zero_recipe(const Shape& shape);  // for blocks without a source: only the target's strides matter

}  // namespace layout_kernels

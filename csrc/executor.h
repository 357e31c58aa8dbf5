// SPDX-License-Identifier: Apache-2.0
// Runs a block table. All thinking is done once, in the constructor; run() only walks the list of work.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels.h"
#include "recipe.h"
#include "table.h"

namespace layout_kernels {

// Copies from this size on are written past the caches: they would only push out what is still wanted.
constexpr int64_t default_streaming_from = 16 * 1024 * 1024;

class Executor {
 public:
  Executor(const Table& table, int threads, int64_t streaming_from = default_streaming_from);

  // Work points at the recipes.
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void run() const;

  int64_t nbytes() const { return nbytes_; }
  int64_t blocks() const { return blocks_; }
  int threads() const { return threads_; }

 private:
  const Recipe& recipe_of(const Block& block) const;
  void share_out(const Table& table, bool streaming);
  void cut(const Work& whole, int64_t items, int64_t grain);

  std::vector<Recipe> copies_, zeros_;  // by shape
  std::vector<Work> work_;
  std::vector<size_t> tasks_;  // task t is work_[tasks_[t]] up to work_[tasks_[t + 1]]
  int64_t nbytes_ = 0;
  int64_t blocks_ = 0;
  int threads_;
};

// The yardstick: nbytes from one address to another on `threads` threads, through the caches or past them.
void copy(uint64_t target, uint64_t source, int64_t nbytes, int threads, bool streaming);

}  // namespace layout_kernels

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "recipe.h"

namespace layout_kernels {

struct Work {
  const Recipe* recipe;
  const char* source;  // null: write zero bytes
  char* target;
  int64_t begin, end;  // items
  bool streaming;      // the whole copy is larger than the caches: write past them
};

// How many pieces the kernel cuts one round of its own loops into; an item of work is one piece of one round.
std::array<int64_t, 2> pieces(const Recipe& recipe, const char* target);

// Tiles: by how many units the first strip is cut short, so that all others start on a cache line of the
// target.
int64_t lead(const Recipe& recipe, const char* target);

void run_rows(const Work& work) noexcept;
void run_tiles(const Work& work) noexcept;
void run_split(const Work& work) noexcept;
void run_merge(const Work& work) noexcept;

}  // namespace layout_kernels

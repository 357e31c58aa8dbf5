// SPDX-License-Identifier: Apache-2.0
// Pairs of single elements, as in (i [gate up]): apart into two streams, and together again.
#include <algorithm>

#include "copy.h"
#include "kernels.h"
#include "walk.h"

namespace layout_kernels {
namespace {

template <int size>
void split_pairs(char* first, char* second, const char* pairs, int64_t count) {
  constexpr int64_t step = 16 / size;
  int64_t i = 0;
  for (; i + step <= count; i += step) {
    const Vector low = load(pairs + 2 * i * size), high = load(pairs + 2 * i * size + 16);
    store(first + i * size, take_even<size>(low, high));
    store(second + i * size, take_odd<size>(low, high));
  }
  for (; i < count; ++i) {
    std::memcpy(first + i * size, pairs + 2 * i * size, size);
    std::memcpy(second + i * size, pairs + (2 * i + 1) * size, size);
  }
}

template <int size>
void merge_pairs(char* pairs, const char* first, const char* second, int64_t count) {
  constexpr int64_t step = 16 / size;
  int64_t i = 0;
  for (; i + step <= count; i += step) {
    const Vector a = load(first + i * size), b = load(second + i * size);
    store(pairs + 2 * i * size, zip_low<size>(a, b));
    store(pairs + 2 * i * size + 16, zip_high<size>(a, b));
  }
  for (; i < count; ++i) {
    std::memcpy(pairs + 2 * i * size, first + i * size, size);
    std::memcpy(pairs + (2 * i + 1) * size, second + i * size, size);
  }
}

template <typename Body>
void for_each_segment(const Work& work, Body&& body) {
  const Recipe& recipe = *work.recipe;
  const Digit& inner = recipe.inner;
  Walk walk(recipe, pieces(recipe, work.target), work.begin);
  for (int64_t item = work.begin; item < work.end; ++item, walk.step()) {
    const int64_t first = walk.piece(0) * recipe.segment;
    body(work.target + walk.target() + first * inner.target, work.source + walk.source() + first * inner.source,
         std::min(recipe.segment, inner.extent - first));
  }
}

template <int size>
void split(const Work& work) {
  const int64_t other = work.recipe->other;
  for_each_segment(work, [&](char* target, const char* source, int64_t count) {
    split_pairs<size>(target, target + other, source, count);
  });
}

template <int size>
void merge(const Work& work) {
  const int64_t other = work.recipe->other;
  for_each_segment(work, [&](char* target, const char* source, int64_t count) {
    merge_pairs<size>(target, source, source + other, count);
  });
}

}  // namespace

void run_split(const Work& work) noexcept {
  switch (work.recipe->source_unit) {
    case 1: return split<1>(work);
    case 2: return split<2>(work);
    case 4: return split<4>(work);
    default: return split<8>(work);
  }
}

void run_merge(const Work& work) noexcept {
  switch (work.recipe->source_unit) {
    case 1: return merge<1>(work);
    case 2: return merge<2>(work);
    case 4: return merge<4>(work);
    default: return merge<8>(work);
  }
}

}  // namespace layout_kernels

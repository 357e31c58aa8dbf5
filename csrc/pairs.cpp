// SPDX-License-Identifier: Apache-2.0
// Pairs of single elements, as in (i [gate up]): apart into two streams, and together again.
#include <algorithm>

#include "copy.h"
#include "kernels.h"
#include "walk.h"

namespace layout_kernels {
namespace {

constexpr int64_t ahead =
    1024;  // two short streams take turns, faster than the hardware learns to prefetch them

template <bool past_cache>
void put(char* to, Vector vector) {
  if constexpr (past_cache)
    store_past_cache(to, vector);
  else
    store(to, vector);
}

// A line of each stream at a time, then what is left pair by pair.
template <int size, bool past_cache>
void split_pairs(char* first, char* second, const char* pairs, int64_t count) {
  constexpr int64_t step = cache_line / size;
  int64_t i = 0;
  for (; i + step <= count; i += step) {
    const char* from = pairs + 2 * i * size;
    Vector v[8];
    for (int k = 0; k < 8; ++k) v[k] = load(from + 16 * k);
    for (int k = 0; k < 4; ++k)
      put<past_cache>(first + i * size + 16 * k, take_even<size>(v[2 * k], v[2 * k + 1]));
    for (int k = 0; k < 4; ++k)
      put<past_cache>(second + i * size + 16 * k, take_odd<size>(v[2 * k], v[2 * k + 1]));
  }
  for (; i < count; ++i) {
    std::memcpy(first + i * size, pairs + 2 * i * size, size);
    std::memcpy(second + i * size, pairs + (2 * i + 1) * size, size);
  }
}

template <int size, bool past_cache>
void merge_pairs(char* pairs, const char* first, const char* second, int64_t count) {
  constexpr int64_t step = 32 / size;
  int64_t i = 0;
  for (; i + step <= count; i += step) {
    char* to = pairs + 2 * i * size;
    __builtin_prefetch(first + i * size + ahead);
    __builtin_prefetch(second + i * size + ahead);
    for (int k = 0; k < 32; k += 16) {
      const Vector a = load(first + i * size + k), b = load(second + i * size + k);
      put<past_cache>(to + 2 * k, zip_low<size>(a, b));
      put<past_cache>(to + 2 * k + 16, zip_high<size>(a, b));
    }
  }
  for (; i < count; ++i) {
    std::memcpy(pairs + 2 * i * size, first + i * size, size);
    std::memcpy(pairs + (2 * i + 1) * size, second + i * size, size);
  }
}

// Past the caches only where every segment starts on a line, or lines would be carried in parts.
bool streams(const Work& work) {
  const Recipe& recipe = *work.recipe;
  return work.streaming && recipe.target_steps % cache_line == 0 &&
         misalignment(work.target, cache_line) == 0 && recipe.segment * recipe.source_unit % cache_line == 0;
}

template <typename Body>
void for_each_segment(const Work& work, Body&& body) {
  const Recipe& recipe = *work.recipe;
  const Digit& inner = recipe.inner;
  Walk walk(recipe, pieces(recipe, work.target), work.begin);
  for (int64_t item = work.begin; item < work.end; ++item, walk.step()) {
    const int64_t first = walk.piece(0) * recipe.segment;
    body(work.target + walk.target() + first * inner.target,
         work.source + walk.source() + first * inner.source, std::min(recipe.segment, inner.extent - first));
  }
}

template <int size, bool past_cache>
void split(const Work& work) {
  const int64_t other = work.recipe->other;
  for_each_segment(work, [&](char* target, const char* source, int64_t count) {
    split_pairs<size, past_cache>(target, target + other, source, count);
  });
}

template <int size, bool past_cache>
void merge(const Work& work) {
  const int64_t other = work.recipe->other;
  for_each_segment(work, [&](char* target, const char* source, int64_t count) {
    merge_pairs<size, past_cache>(target, source, source + other, count);
  });
}

template <bool past_cache>
void split_any(const Work& work) {
  switch (work.recipe->source_unit) {
    case 1:
      return split<1, past_cache>(work);
    case 2:
      return split<2, past_cache>(work);
    case 4:
      return split<4, past_cache>(work);
    default:
      return split<8, past_cache>(work);
  }
}

template <bool past_cache>
void merge_any(const Work& work) {
  switch (work.recipe->source_unit) {
    case 1:
      return merge<1, past_cache>(work);
    case 2:
      return merge<2, past_cache>(work);
    case 4:
      return merge<4, past_cache>(work);
    default:
      return merge<8, past_cache>(work);
  }
}

}  // namespace

void run_split(const Work& work) noexcept {
  streams(work) ? split_any<true>(work) : split_any<false>(work);
}

void run_merge(const Work& work) noexcept {
  streams(work) ? merge_any<true>(work) : merge_any<false>(work);
}

}  // namespace layout_kernels

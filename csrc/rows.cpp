// SPDX-License-Identifier: Apache-2.0
// Rows: one digit runs fastest on both sides. Long runs, rows of runs, strided rows, casts and zeros.
#include <algorithm>

#include "cast.h"
#include "copy.h"
#include "kernels.h"
#include "walk.h"

namespace layout_kernels {
namespace {

constexpr int64_t short_stream = 1024;  // below this the two ends of a streamed run cost more than they save

struct Row {
  char* target;
  const char* source;
  int64_t count;
};

// Calls `body(Row)` for every item of the work.
template <typename Body>
void for_each_row(const Work& work, Body&& body) {
  const Recipe& recipe = *work.recipe;
  const Digit& inner = recipe.inner;
  const auto cuts = pieces(recipe, work.target);
  Walk walk(recipe, cuts, work.begin);
  for (int64_t item = work.begin; item < work.end; ++item, walk.step()) {
    const int64_t first = walk.piece(0) * recipe.segment;
    body(Row{work.target + walk.target() + first * inner.target,
             work.source + walk.source() + first * inner.source,
             std::min(recipe.segment, inner.extent - first)});
  }
}

void zero_rows(const Work& work) {
  const Recipe& recipe = *work.recipe;
  const auto unit = static_cast<size_t>(recipe.target_unit);
  const bool contiguous = recipe.inner.target == recipe.target_unit;
  for_each_row(work, [&](const Row& row) {
    if (contiguous) {
      std::memset(row.target, 0, static_cast<size_t>(row.count) * unit);
      return;
    }
    for (int64_t i = 0; i < row.count; ++i) std::memset(row.target + i * recipe.inner.target, 0, unit);
  });
}

void run_casts(const Work& work) {
  const Digit& inner = work.recipe->inner;
  const CastRow cast = work.recipe->cast_row;
  for_each_row(work,
               [&](const Row& row) { cast(row.target, row.source, row.count, inner.target, inner.source); });
}

void contiguous_rows(const Work& work) {
  const Recipe& recipe = *work.recipe;
  const int64_t unit = recipe.target_unit;
  const bool streaming = work.streaming && recipe.inner.extent * unit >= short_stream;
  for_each_row(work,
               [&](const Row& row) { copy_bytes(row.target, row.source, row.count * unit, streaming); });
}

// Units past the caches: only where they fill lines, alone or side by side.
bool fill_lines(const Work& work) {
  const Recipe& recipe = *work.recipe;
  const int64_t unit = recipe.target_unit;
  const int64_t grain = unit % cache_line == 0 ? cache_line : 16;
  const bool aligned = recipe.target_steps % grain == 0 && misalignment(work.target, grain) == 0;
  return work.streaming && unit % grain == 0 && aligned &&
         (grain == cache_line || recipe.inner.target == unit);
}

void streamed_rows(const Work& work) {
  const Digit inner = work.recipe->inner;
  const int64_t unit = work.recipe->target_unit;
  for_each_row(work, [&](const Row& row) {
    for (int64_t i = 0; i < row.count; ++i)
      stream_vectors(row.target + i * inner.target, row.source + i * inner.source, unit);
  });
}

template <typename Size>
void strided_rows(const Work& work, Size unit) {
  const Digit inner = work.recipe->inner;
  for_each_row(work, [&](const Row& row) {
    for (int64_t i = 0; i < row.count; ++i)
      unit.copy(row.target + i * inner.target, row.source + i * inner.source);
  });
}

}  // namespace

void run_rows(const Work& work) noexcept {
  const Recipe& recipe = *work.recipe;
  if (work.source == nullptr) return zero_rows(work);
  if (recipe.cast) return run_casts(work);
  if (recipe.inner.source == recipe.source_unit && recipe.inner.target == recipe.target_unit)
    return contiguous_rows(work);
  if (fill_lines(work)) return streamed_rows(work);
  with_unit(recipe.source_unit, [&](auto unit) { strided_rows(work, unit); });
}

}  // namespace layout_kernels

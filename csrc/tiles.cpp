// SPDX-License-Identifier: Apache-2.0
// Tiles: a transpose, a cache line wide and a cache line high, so that both sides move whole lines. The walk goes
// along the rows of the source: they are read as a few streams, and the target pages it writes come round again.
#include <algorithm>

#include "cast.h"
#include "copy.h"
#include "kernels.h"
#include "lines.h"
#include "walk.h"

namespace layout_kernels {
namespace {

constexpr int64_t tile_row = cache_line;  // bytes between rows of the tile buffer

// One strip of `down` by one segment of `across`; addresses stand at the first position of the strip.
struct Strip {
  char* target;
  const char* source;
  int64_t down, height;
  int64_t across, across_end;
};

template <typename Body>
void for_each_strip(const Work& work, Body&& body) {
  const Recipe& recipe = *work.recipe;
  const int64_t cut = lead(recipe, work.target);
  Walk walk(recipe, pieces(recipe, work.target), work.begin);
  for (int64_t item = work.begin; item < work.end; ++item, walk.step()) {
    const int64_t across = walk.piece(0) * recipe.segment;
    const int64_t start = walk.piece(1) * recipe.strip - cut;
    const int64_t down = std::max<int64_t>(0, start);
    const int64_t end = std::min(start + recipe.strip, recipe.down.length());
    body(Strip{work.target + walk.target() + down * recipe.down.near(), work.source + walk.source(), down, end - down,
               across, std::min(across + recipe.segment, recipe.across.length())});
  }
}

void copy_row(char* target, const char* from, int64_t nbytes) {
  int64_t i = 0;
  for (; i + 16 <= nbytes; i += 16) store(target + i, load(from + i));
  copy_few(target + i, from + i, nbytes - i);
}

void stream_row(char* target, const char* from, int64_t nbytes) {
  for (int64_t i = 0; i < nbytes; i += 16) store_past_cache(target + i, load(from + i));
}

// Source rows are often a power of two apart and then compete for the same few places in the caches. So each line
// is read once, and whole, into a tile that lies together; `width` is in bytes.
void stage(char* tile, const char* const* rows, int64_t height, int64_t offset, int64_t width, [[maybe_unused]] int64_t ahead) {
  for (int64_t j = 0; j < height; ++j) {
#ifdef PF
    if (ahead) __builtin_prefetch(rows[j] + offset + PF * 64);
#endif
    if (width == tile_row)
      std::memcpy(tile + j * tile_row, rows[j] + offset, tile_row);
    else
      copy_row(tile + j * tile_row, rows[j] + offset, width);
  }
}

enum class Way { lines, streamed_lines, rows, streamed_rows, casts };

// How the columns of a tile reach the target. Columns shorter than a line still fill lines where they lie side by
// side.
Way way_out(const Work& work, const Strip& strip) {
  const Recipe& recipe = *work.recipe;
  if (recipe.cast) return Way::casts;
  const int64_t nbytes = strip.height * recipe.source_unit;
  const bool side_by_side = recipe.across.linear() && recipe.across.far_step() == nbytes && nbytes % 16 == 0;
  const int64_t grain = nbytes == cache_line ? cache_line : 16;
  const bool aligned = misalignment(strip.target, grain) == 0 && recipe.target_grain >= grain;
  if (nbytes == cache_line) return work.streaming && aligned ? Way::streamed_lines : Way::lines;
  return work.streaming && aligned && side_by_side ? Way::streamed_rows : Way::rows;
}

void write_short_columns(const Recipe& recipe, Way way, char* const* to, const char* columns, int64_t width,
                         int64_t height) {
  const int64_t nbytes = height * recipe.source_unit;
  const CastRow cast = way == Way::casts ? cast_row(recipe.cast) : nullptr;
  for (int64_t i = 0; i < width; ++i, columns += tile_row)
    if (way == Way::casts)
      cast(to[i], columns, height, recipe.target_unit, recipe.source_unit);
    else if (way == Way::streamed_rows)
      stream_row(to[i], columns, nbytes);
    else
      copy_row(to[i], columns, nbytes);
}

template <int size>
void vector_tiles(const Work& work) {
  constexpr int64_t side = cache_line / size;
  const Recipe& recipe = *work.recipe;
  const WriteLines write_lines = recipe.write_lines;
  alignas(cache_line) char tile[side * tile_row], columns[side * tile_row];
  std::memset(tile, 0, sizeof tile);
  char *to[side], *buffered[side];
  for (int64_t i = 0; i < side; ++i) buffered[i] = columns + i * tile_row;
  for_each_strip(work, [&](const Strip& strip) {
    const char* rows[side];
    for (int64_t j = 0; j < strip.height; ++j) rows[j] = strip.source + recipe.down.far(strip.down + j);
    const Way way = way_out(work, strip);
    for (int64_t across = strip.across; across < strip.across_end; across += side) {
      const int64_t width = std::min(side, strip.across_end - across);
      for (int64_t i = 0; i < width; ++i) to[i] = strip.target + recipe.across.far(across + i);
      stage(tile, rows, strip.height, across * size, width * size, across + 2 * side < strip.across_end);
      if (way == Way::lines || way == Way::streamed_lines) {
        write_lines(to, tile, tile_row, width, way == Way::streamed_lines);
      } else {
        write_lines(buffered, tile, tile_row, width, false);
        write_short_columns(recipe, way, to, columns, width, strip.height);
      }
    }
  });
}

// Any strides and any unit: element by element, still tile by tile.
template <typename Move>
void plain_tiles(const Work& work, Move&& move) {
  const Recipe& recipe = *work.recipe;
  for_each_strip(work, [&](const Strip& strip) {
    for (int64_t across = strip.across; across < strip.across_end; across += recipe.strip)
      for (int64_t i = across; i < std::min(across + recipe.strip, strip.across_end); ++i)
        for (int64_t j = 0; j < strip.height; ++j)
          move(strip.target + recipe.across.far(i) + j * recipe.down.near(),
               strip.source + recipe.down.far(strip.down + j) + i * recipe.across.near());
  });
}

}  // namespace

void run_tiles(const Work& work) noexcept {
  const Recipe& recipe = *work.recipe;
  if (recipe.write_lines != nullptr) switch (recipe.source_unit) {
      case 1: return vector_tiles<1>(work);
      case 2: return vector_tiles<2>(work);
      case 4: return vector_tiles<4>(work);
      case 8: return vector_tiles<8>(work);
      case 16: return vector_tiles<16>(work);
    }
  if (recipe.cast) {
    const CastRow cast = cast_row(recipe.cast);
    return plain_tiles(work, [=](char* target, const char* source) { cast(target, source, 1, 0, 0); });
  }
  with_unit(recipe.source_unit, [&](auto unit) {
    plain_tiles(work, [=](char* target, const char* source) { unit.copy(target, source); });
  });
}

}  // namespace layout_kernels

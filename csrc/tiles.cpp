// SPDX-License-Identifier: Apache-2.0
// Tiles: a transpose, a cache line wide and a cache line high, so that both sides move whole lines. The walk
// goes along the rows of the source: they are read as a few streams, and the target pages it writes come
// round again.
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
    body(Strip{work.target + walk.target() + down * recipe.down.near(), work.source + walk.source(), down,
               end - down, across, std::min(across + recipe.segment, recipe.across.length())});
  }
}

void copy_row(char* target, const char* from, int64_t nbytes) {
  int64_t i = 0;
  for (; i + 16 <= nbytes; i += 16) store(target + i, load(from + i));
  copy_few(target + i, from + i, nbytes - i);
}

// Source rows are often a power of two apart and then compete for the same few places in the caches. So each
// line is read once, and whole, into a tile that lies together; meanwhile the next tile is fetched. A cast is
// done here.
void stage(const Recipe& recipe, char* tile, const char* const* rows, int64_t height, int64_t across,
           int64_t width, bool more) {
  const int64_t nbytes = width * recipe.source_unit;
  for (int64_t j = 0; j < height; ++j, tile += tile_row) {
    const char* row = rows[j] + across * recipe.source_unit;
    if (more)
      __builtin_prefetch(row + 2 * nbytes - 1);  // a row that starts inside a line shares it with this tile
    if (recipe.cast)
      recipe.cast_row(tile, row, width, recipe.target_unit, recipe.source_unit);
    else if (nbytes == tile_row)
      std::memcpy(tile, row, tile_row);
    else
      copy_row(tile, row, nbytes);
  }
}

enum class Way { lines, streamed_lines, rows, streamed_rows };

// How the columns of a tile, `nbytes` each, reach the target. Columns shorter than a line still fill lines
// where they lie side by side.
Way way_out(const Work& work, const Strip& strip, int64_t nbytes) {
  const Recipe& recipe = *work.recipe;
  const bool side_by_side = recipe.across.linear() && recipe.across.far_step() == nbytes && nbytes % 16 == 0;
  const int64_t grain = nbytes == cache_line ? cache_line : 16;
  const bool streaming =
      work.streaming && recipe.target_steps % grain == 0 && misalignment(strip.target, grain) == 0;
  if (nbytes == cache_line) return streaming ? Way::streamed_lines : Way::lines;
  return streaming && side_by_side ? Way::streamed_rows : Way::rows;
}

// A tile of 64 by 64 bytes in the target's units, and where its columns go.
template <int size>
struct Tile {
  static constexpr int64_t side = cache_line / size;

  alignas(cache_line) char staged[side * tile_row] = {};
  alignas(cache_line) char columns[side * tile_row];
  char* buffered[side];
  char* to[side];

  Tile() {
    for (int64_t i = 0; i < side; ++i) buffered[i] = columns + i * tile_row;
  }
};

template <int size>
void write_tile(const Recipe& recipe, const Tile<size>& tile, Way way, int64_t width, int64_t nbytes) {
  if (way == Way::lines || way == Way::streamed_lines)
    return recipe.write_lines(tile.to, tile.staged, tile_row, width, way == Way::streamed_lines);
  recipe.write_lines(tile.buffered, tile.staged, tile_row, width, false);
  for (int64_t i = 0; i < width; ++i)
    if (way == Way::streamed_rows)
      stream_vectors(tile.to[i], tile.buffered[i], nbytes);
    else
      copy_row(tile.to[i], tile.buffered[i], nbytes);
}

template <int size>
void vector_tiles(const Work& work) {
  constexpr int64_t side = Tile<size>::side;
  const Recipe& recipe = *work.recipe;
  const int64_t step = std::min(side, cache_line / recipe.source_unit);  // one line of every source row
  Tile<size> tile;
  for_each_strip(work, [&](const Strip& strip) {
    const char* rows[side];
    for (int64_t j = 0; j < strip.height; ++j) rows[j] = strip.source + recipe.down.far(strip.down + j);
    const Way way = way_out(work, strip, strip.height * size);
    for (int64_t across = strip.across; across < strip.across_end; across += step) {
      const int64_t width = std::min(step, strip.across_end - across);
      for (int64_t i = 0; i < width; ++i) tile.to[i] = strip.target + recipe.across.far(across + i);
      stage(recipe, tile.staged, rows, strip.height, across, width, across + width < strip.across_end);
      write_tile(recipe, tile, way, width, strip.height * size);
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

bool units_fill_lines(const Work& work) {
  const Recipe& recipe = *work.recipe;
  const int64_t unit = recipe.source_unit;
  const bool aligned = recipe.target_steps % cache_line == 0 && misalignment(work.target, cache_line) == 0;
  return work.streaming && aligned && recipe.down.near() == unit && unit % 16 == 0 && cache_line % unit == 0;
}

}  // namespace

void run_tiles(const Work& work) noexcept {
  const Recipe& recipe = *work.recipe;
  if (recipe.write_lines != nullptr) switch (recipe.target_unit) {
      case 1:
        return vector_tiles<1>(work);
      case 2:
        return vector_tiles<2>(work);
      case 4:
        return vector_tiles<4>(work);
      case 8:
        return vector_tiles<8>(work);
      default:
        return vector_tiles<16>(work);
    }
  if (recipe.cast) {
    const CastRow cast = recipe.cast_row;
    return plain_tiles(work, [=](char* target, const char* source) { cast(target, source, 1, 0, 0); });
  }
  if (units_fill_lines(work)) {
    const int64_t unit = recipe.source_unit;
    return plain_tiles(work, [=](char* target, const char* source) { stream_vectors(target, source, unit); });
  }
  with_unit(recipe.source_unit, [&](auto unit) {
    plain_tiles(work, [=](char* target, const char* source) { unit.copy(target, source); });
  });
}

}  // namespace layout_kernels

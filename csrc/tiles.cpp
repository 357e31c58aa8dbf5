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

// Source rows are often a power of two apart and then compete for the same few places in the caches. So each line
// is read once, and whole, into a tile that lies together; meanwhile the next tile is fetched. In bytes.
void stage(char* tile, const char* const* rows, int64_t height, int64_t offset, int64_t width, bool more) {
  for (int64_t j = 0; j < height; ++j, tile += tile_row) {
    const char* row = rows[j] + offset;
    if (more) __builtin_prefetch(row + tile_row);
    if (width == tile_row)
      std::memcpy(tile, row, tile_row);
    else
      copy_row(tile, row, width);
  }
}

enum class Way { lines, streamed_lines, rows, streamed_rows };

// How the columns of a tile, `nbytes` each, reach the target. Columns shorter than a line still fill lines where
// they lie side by side.
Way way_out(const Work& work, const Strip& strip, int64_t nbytes) {
  const Recipe& recipe = *work.recipe;
  const bool side_by_side = recipe.across.linear() && recipe.across.far_step() == nbytes && nbytes % 16 == 0;
  const int64_t grain = nbytes % cache_line == 0 ? cache_line : 16;
  const bool streaming =
      work.streaming && recipe.target_steps % grain == 0 && misalignment(strip.target, grain) == 0;
  if (nbytes % cache_line == 0) return streaming ? Way::streamed_lines : Way::lines;
  return streaming && side_by_side ? Way::streamed_rows : Way::rows;
}

void write_columns(Way way, char* const* to, const char* columns, int64_t pitch, int64_t width, int64_t nbytes) {
  const bool streaming = way == Way::streamed_rows || way == Way::streamed_lines;
  for (int64_t i = 0; i < width; ++i, columns += pitch)
    if (streaming)
      stream_vectors(to[i], columns, nbytes);
    else
      copy_row(to[i], columns, nbytes);
}

// A tile of 64 bytes by 64 bytes, and where its columns go.
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

// Calls `body(strip, rows, across, width)` for every tile: the addresses of its source rows, its first column and
// how many there are.
template <int size, int64_t most_rows, typename Body>
void for_each_tile(const Work& work, char** to, Body&& body) {
  constexpr int64_t side = cache_line / size;
  const Recipe& recipe = *work.recipe;
  for_each_strip(work, [&](const Strip& strip) {
    const char* rows[most_rows];
    for (int64_t j = 0; j < strip.height; ++j) rows[j] = strip.source + recipe.down.far(strip.down + j);
    for (int64_t across = strip.across; across < strip.across_end; across += side) {
      const int64_t width = std::min(side, strip.across_end - across);
      for (int64_t i = 0; i < width; ++i) to[i] = strip.target + recipe.across.far(across + i);
      body(strip, rows, across, width);
    }
  });
}

template <int size>
void vector_tiles(const Work& work) {
  const WriteLines write_lines = work.recipe->write_lines;
  Tile<size> tile;
  for_each_tile<size, Tile<size>::side>(
      work, tile.to, [&](const Strip& strip, const char* const* rows, int64_t across, int64_t width) {
        const int64_t nbytes = strip.height * size;
        const Way way = way_out(work, strip, nbytes);
        stage(tile.staged, rows, strip.height, across * size, width * size, across + width < strip.across_end);
        if (way == Way::lines || way == Way::streamed_lines)
          return write_lines(tile.to, tile.staged, tile_row, width, way == Way::streamed_lines);
        write_lines(tile.buffered, tile.staged, tile_row, width, false);
        write_columns(way, tile.to, tile.columns, tile_row, width, nbytes);
      });
}

// The strip is as high as fills a line on the side of the smaller numbers: two tiles high for float32 to bfloat16.
template <int size>
void cast_tiles(const Work& work) {
  constexpr int64_t side = cache_line / size, most_rows = 32, pitch = 2 * cache_line;
  const Recipe& recipe = *work.recipe;
  const int64_t unit = recipe.target_unit;
  Tile<size> tile;
  alignas(cache_line) char cast[side * pitch];
  for_each_tile<size, most_rows>(
      work, tile.to, [&](const Strip& strip, const char* const* rows, int64_t across, int64_t width) {
        for (int64_t down = 0; down < strip.height; down += side) {
          const int64_t height = std::min(side, strip.height - down);
          stage(tile.staged, rows + down, height, across * size, width * size, across + width < strip.across_end);
          recipe.write_lines(tile.buffered, tile.staged, tile_row, width, false);
          for (int64_t i = 0; i < width; ++i)
            recipe.cast_row(cast + i * pitch + down * unit, tile.buffered[i], height, unit, size);
        }
        const int64_t nbytes = strip.height * unit;
        write_columns(way_out(work, strip, nbytes), tile.to, cast, pitch, width, nbytes);
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
  if (recipe.write_lines != nullptr && recipe.cast)
    return recipe.source_unit == 2 ? cast_tiles<2>(work) : cast_tiles<4>(work);
  if (recipe.write_lines != nullptr) switch (recipe.source_unit) {
      case 1: return vector_tiles<1>(work);
      case 2: return vector_tiles<2>(work);
      case 4: return vector_tiles<4>(work);
      case 8: return vector_tiles<8>(work);
      default: return vector_tiles<16>(work);
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

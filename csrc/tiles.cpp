// SPDX-License-Identifier: Apache-2.0
// Tiles: a transpose, a cache line wide and a cache line high, so that both sides move whole lines. The walk goes
// along the rows of the source: they are read as a few streams, and the target pages it writes come round again.
#include <algorithm>

#include "cast.h"
#include "copy.h"
#include "kernels.h"
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

// A square of 16 bytes each way, in registers: one step of zipping halves for each power of two.
template <int size>
void transpose_square(char* tile, const char* const* rows, int64_t offset) {
  constexpr int side = 16 / size;
  Vector v[side], w[side];
  for (int i = 0; i < side; ++i) v[i] = load(rows[i] + offset);
  if constexpr (side > 1) {
    for (int step = 1; step < side; step *= 2) {
      for (int i = 0; i < side / 2; ++i) {
        w[2 * i] = zip_low<size>(v[i], v[i + side / 2]);
        w[2 * i + 1] = zip_high<size>(v[i], v[i + side / 2]);
      }
      for (int i = 0; i < side; ++i) v[i] = w[i];
    }
  }
  for (int i = 0; i < side; ++i) store(tile + i * tile_row, v[i]);
}

template <int size>
void transpose_narrow(char* tile, const char* const* rows, int64_t offset, int64_t width, int64_t height) {
  for (int64_t i = 0; i < width; ++i)
    for (int64_t j = 0; j < height; ++j)
      std::memcpy(tile + i * tile_row + j * size, rows[j] + offset + i * size, size);
}

// tile[i][j] = rows[j][i]. `rows` is filled up to whole squares; a last square across overlaps its neighbour.
template <int size>
void transpose_tile(char* tile, const char* const* rows, int64_t offset, int64_t width, int64_t height) {
  constexpr int64_t side = 16 / size;
  if (width < side) return transpose_narrow<size>(tile, rows, offset, width, height);
  for (int64_t i = 0; i < width; i += side) {
    const int64_t first = std::min(i, width - side);
    for (int64_t j = 0; j < height; j += side)
      transpose_square<size>(tile + first * tile_row + j * size, rows + j, offset + first * size);
  }
}

void stream_row(char* target, const char* from, int64_t nbytes) {
  for (int64_t i = 0; i < nbytes; i += 16) store_past_cache(target + i, load(from + i));
}

void stream_line(char* target, const char* from) {
  for (int i = 0; i < 64; i += 16) store_past_cache(target + i, load(from + i));
}

void store_line(char* target, const char* from) {
  for (int i = 0; i < 64; i += 16) store(target + i, load(from + i));
}

void copy_row(char* target, const char* from, int64_t nbytes) {
  int64_t i = 0;
  for (; i + 16 <= nbytes; i += 16) store(target + i, load(from + i));
  copy_few(target + i, from + i, nbytes - i);
}

// How the rows of a tile reach the target.
struct Emit {
  enum class Way { plain, streaming, cast } way;
  CastRow cast;
  int64_t nbytes;
};

// Rows that fill no line alone but lie side by side fill lines together.
bool fills_lines(const Recipe& recipe, int64_t nbytes) {
  const bool side_by_side = recipe.across.linear() && recipe.across.far_step() == nbytes;
  return nbytes == cache_line || (nbytes % 16 == 0 && side_by_side);
}

void emit_tile(const Emit& emit, const Recipe& recipe, const Strip& strip, const char* tile, int64_t across,
               int64_t width) {
  const Chain& chain = recipe.across;
  if (emit.way == Emit::Way::cast) {
    for (int64_t i = 0; i < width; ++i)
      emit.cast(strip.target + chain.far(across + i), tile + i * tile_row, strip.height, recipe.target_unit,
                recipe.source_unit);
  } else if (emit.way == Emit::Way::streaming) {
    if (emit.nbytes == cache_line)
      for (int64_t i = 0; i < width; ++i) stream_line(strip.target + chain.far(across + i), tile + i * tile_row);
    else
      for (int64_t i = 0; i < width; ++i)
        stream_row(strip.target + chain.far(across + i), tile + i * tile_row, emit.nbytes);
  } else if (emit.nbytes == cache_line) {
    for (int64_t i = 0; i < width; ++i) store_line(strip.target + chain.far(across + i), tile + i * tile_row);
  } else {
    for (int64_t i = 0; i < width; ++i)
      copy_row(strip.target + chain.far(across + i), tile + i * tile_row, emit.nbytes);
  }
}

Emit emit_for(const Work& work, const Strip& strip) {
  const Recipe& recipe = *work.recipe;
  const int64_t nbytes = strip.height * recipe.source_unit;
  if (recipe.cast) return {Emit::Way::cast, cast_row(recipe.cast), nbytes};
  const int64_t grain = std::min<int64_t>(nbytes, cache_line) == cache_line ? cache_line : 16;
  const bool aligned = misalignment(strip.target, grain) == 0 && recipe.target_grain >= grain;
  const bool streaming = work.streaming && aligned && fills_lines(recipe, nbytes);
  return {streaming ? Emit::Way::streaming : Emit::Way::plain, nullptr, nbytes};
}

template <int size>
void vector_tiles(const Work& work) {
  constexpr int64_t side = cache_line / size;
  const Recipe& recipe = *work.recipe;
  alignas(cache_line) char tile[static_cast<size_t>(side * tile_row)];
  for_each_strip(work, [&](const Strip& strip) {
    const char* rows[side];
    for (int64_t j = 0; j < side; ++j)
      rows[j] = strip.source + recipe.down.far(strip.down + std::min(j, strip.height - 1));
    const Emit emit = emit_for(work, strip);
    for (int64_t across = strip.across; across < strip.across_end; across += side) {
      const int64_t width = std::min(side, strip.across_end - across);
      if (across + 2 * side < strip.across_end)
        for (int64_t j = 0; j < strip.height; ++j) __builtin_prefetch(rows[j] + (across + 2 * side) * size);
      transpose_tile<size>(tile, rows, across * size, width, strip.height);
      emit_tile(emit, recipe, strip, tile, across, width);
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

bool both_sides_contiguous(const Recipe& recipe) {
  return recipe.across.near() == recipe.source_unit && recipe.down.near() == recipe.target_unit;
}

}  // namespace

void run_tiles(const Work& work) noexcept {
  const Recipe& recipe = *work.recipe;
  if (both_sides_contiguous(recipe)) switch (recipe.source_unit) {
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

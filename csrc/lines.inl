// SPDX-License-Identifier: Apache-2.0
// Included once for each instruction set, in a namespace of its own that defines, under the attribute
// LK_TARGET: Wide (a vector of lanes of 16 bytes), gather, zip_low, zip_high, write and write_past_cache.

// Lane k holds 16 bytes of row k * side: zipped within lanes, the lanes then hold a column in the order of
// rows.
template <int size>
LK_TARGET void transpose_lanes(Wide* columns, const char* tile, int64_t pitch) {
  constexpr int side = 16 / size;
  Wide zipped[side];
#pragma GCC unroll 16
  for (int i = 0; i < side; ++i) columns[i] = gather(tile + i * pitch, side * pitch);
  if constexpr (side > 1) {
#pragma GCC unroll 4
    for (int step = 1; step < side; step *= 2) {
#pragma GCC unroll 8
      for (int i = 0; i < side / 2; ++i) {
        zipped[2 * i] = zip_low<size>(columns[i], columns[i + side / 2]);
        zipped[2 * i + 1] = zip_high<size>(columns[i], columns[i + side / 2]);
      }
#pragma GCC unroll 16
      for (int i = 0; i < side; ++i) columns[i] = zipped[i];
    }
  }
}

template <int size, bool past_cache>
LK_TARGET void write_columns(char* const* to, const char* tile, int64_t pitch, int64_t width) {
  constexpr int side = 16 / size, parts = 64 / sizeof(Wide);
  constexpr int64_t part_rows = static_cast<int64_t>(sizeof(Wide)) / size;
  Wide columns[parts][side];
  for (int64_t first = 0; first < width; first += side) {
#pragma GCC unroll 4
    for (int part = 0; part < parts; ++part)
      transpose_lanes<size>(columns[part], tile + first * size + part * part_rows * pitch, pitch);
    const int64_t count = width - first < side ? width - first : side;
    for (int64_t i = 0; i < count; ++i)
#pragma GCC unroll 4
      for (int part = 0; part < parts; ++part) {
        char* at = to[first + i] + part * static_cast<int>(sizeof(Wide));
        if constexpr (past_cache)
          write_past_cache(at, columns[part][i]);
        else
          write(at, columns[part][i]);
      }
  }
}

template <int size>
LK_ENTRY void write_lines(char* const* to, const char* tile, int64_t pitch, int64_t width, bool past_cache) {
  if (past_cache)
    write_columns<size, true>(to, tile, pitch, width);
  else
    write_columns<size, false>(to, tile, pitch, width);
}

inline WriteLines writer(int64_t size) {
  switch (size) {
    case 1:
      return write_lines<1>;
    case 2:
      return write_lines<2>;
    case 4:
      return write_lines<4>;
    case 8:
      return write_lines<8>;
    default:
      return write_lines<16>;
  }
}

// SPDX-License-Identifier: Apache-2.0
// The heart of a transpose: the columns of a small tile, written as cache lines.
#pragma once

#include <cstdint>
#include <vector>

namespace layout_kernels {

// to[i][j] = tile[j * pitch][i] for i < width and j < 64 / size, in elements of `size` bytes. Whole lines of
// 64 bytes are written, past the caches if so asked (then `to` is aligned to 64). The tile is read up to the
// next multiple of 16 bytes across.
using WriteLines = void (*)(char* const* to, const char* tile, int64_t pitch, int64_t width, bool past_cache);

// All that this machine can run, the best last. Sizes are 1, 2, 4, 8 and 16.
std::vector<WriteLines> line_writers(int64_t size);

}  // namespace layout_kernels

// SPDX-License-Identifier: Apache-2.0
// Casts between bfloat16, float16 and float32: rounded once, to nearest even. A NaN stays one: it keeps its
// sign and the top of its payload, and becomes quiet.
#pragma once

#include <cstdint>
#include <vector>

#include "table.h"

namespace layout_kernels {

// target[i] = source[i] for `count` numbers, the strides in bytes.
using CastRow = void (*)(char* target, const char* source, int64_t count, int64_t target_stride,
                         int64_t source_stride);

// All that this machine can run, the best last.
std::vector<CastRow> cast_rows(Cast cast);

}  // namespace layout_kernels

// SPDX-License-Identifier: Apache-2.0
// The block table: all that the executor is told. Sizes and addresses in bytes; no axes, no tensors, no
// models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace layout_kernels {

enum class Number : int32_t { bfloat16 = 0, float16 = 1, float32 = 2 };

// 0 moves bits unchanged; otherwise 1 + 3 * from + to.
struct Cast {
  int32_t code = 0;

  explicit operator bool() const { return code != 0; }
  Number from() const { return static_cast<Number>((code - 1) / 3); }
  Number to() const { return static_cast<Number>((code - 1) % 3); }
};

inline int64_t size_of(Number number) {
  return number == Number::float32 ? 4 : 2;
}

// One loop of a copy: `extent` steps, so many bytes apart on either side.
struct Digit {
  int64_t extent;
  int64_t source;
  int64_t target;
};

// for each index of the digits, outermost first: target[sum(i * digit.target)] = source[sum(i *
// digit.source)]
struct Shape {
  std::vector<Digit> digits;
  int64_t element;
  Cast cast;
};

// One copy of a shape between two addresses. A source of 0 fills the target with zero bytes.
struct Block {
  int32_t shape;
  uint64_t source;
  uint64_t target;
};

struct Table {
  std::vector<Shape> shapes;
  std::vector<Block> blocks;
};

// Throws std::invalid_argument naming the shape or block that breaks a rule.
void check(const Table& table);

}  // namespace layout_kernels

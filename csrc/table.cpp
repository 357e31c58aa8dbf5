// SPDX-License-Identifier: Apache-2.0
#include "table.h"

#include <stdexcept>
#include <string>

namespace layout_kernels {
namespace {

[[noreturn]] void refuse(const char* what, size_t index, const std::string& why) {
  throw std::invalid_argument(std::string(what) + " " + std::to_string(index) + ": " + why);
}

bool is_element_size(int64_t size) {
  return size == 1 || size == 2 || size == 4 || size == 8 || size == 16;
}

void check_digit(const Digit& digit, size_t shape) {
  if (digit.extent < 0) refuse("shape", shape, "extent " + std::to_string(digit.extent) + " is negative");
  if (digit.extent < 2) return;
  if (digit.source < 0)
    refuse("shape", shape, "source stride " + std::to_string(digit.source) + " is negative");
  if (digit.target < 1)
    refuse("shape", shape,
           "target stride " + std::to_string(digit.target) + " is not positive; elements would collide");
}

void check_shape(const Shape& shape, size_t index) {
  if (!is_element_size(shape.element))
    refuse("shape", index,
           "an element of " + std::to_string(shape.element) + " bytes; wanted 1, 2, 4, 8 or 16");
  if (shape.cast.code < 0 || shape.cast.code > 9)
    refuse("shape", index, "cast code " + std::to_string(shape.cast.code) + "; wanted 0 to 9");
  for (const Digit& digit : shape.digits) check_digit(digit, index);
}

}  // namespace

void check(const Table& table) {
  for (size_t i = 0; i < table.shapes.size(); ++i) check_shape(table.shapes[i], i);
  for (size_t i = 0; i < table.blocks.size(); ++i) {
    const Block& block = table.blocks[i];
    if (block.shape < 0 || static_cast<size_t>(block.shape) >= table.shapes.size())
      refuse(
          "block", i,
          "shape " + std::to_string(block.shape) + " of " + std::to_string(table.shapes.size()) + " shapes");
  }
}

}  // namespace layout_kernels

// SPDX-License-Identifier: Apache-2.0
// Random tables against the plainest loop: every kernel, odd sizes, misaligned addresses, guard bytes all
// round. Usage: random_tables [seed] [rounds]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <set>

#include "cast.h"
#include "executor.h"
#include "recipe.h"

namespace lk = layout_kernels;

namespace {

using Bytes = std::vector<char>;
constexpr int64_t guard = 128;

std::mt19937_64 random_bits;

int64_t below(int64_t bound) {
  return static_cast<int64_t>(random_bits() % static_cast<uint64_t>(bound));
}

int64_t extent() {
  static const int64_t some[] = {1, 2, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 64, 65, 100};
  return below(200) == 0 ? 0 : some[below(17)];
}

// Strides that lay the digits out in a random order, now and then with a gap; returns the bytes they span.
int64_t lay_out(std::vector<lk::Digit>& digits, int64_t lk::Digit::* stride, int64_t element,
                bool may_repeat) {
  std::vector<size_t> order(digits.size());
  std::iota(order.begin(), order.end(), 0);
  if (below(3) != 0) std::shuffle(order.begin(), order.end(), random_bits);
  int64_t step = element, span = element;
  for (const size_t i : order) {
    lk::Digit& digit = digits[i];
    if (below(8) == 0) step += element * below(3) + (below(4) == 0 ? below(2) : 0);
    const bool repeats = may_repeat && below(12) == 0;
    digit.*stride = repeats ? 0 : step;
    if (repeats) continue;
    span += (std::max<int64_t>(digit.extent, 1) - 1) * step;
    step *= std::max<int64_t>(digit.extent, 1);
  }
  return span;
}

struct Case {
  lk::Shape shape;
  int64_t source_element, target_element, source_span, target_span;
};

int64_t elements(const lk::Shape& shape) {
  int64_t total = 1;
  for (const lk::Digit& digit : shape.digits) total *= digit.extent;
  return total;
}

Case random_case() {
  Case c;
  do {
    c.shape.digits.assign(static_cast<size_t>(below(6)), {});
    for (lk::Digit& digit : c.shape.digits) digit.extent = extent();
  } while (elements(c.shape) > 300000);
  c.shape.element = int64_t{1} << below(5);
  c.shape.cast.code = below(4) == 0 ? static_cast<int32_t>(1 + below(9)) : 0;
  c.source_element = c.shape.cast ? size_of(c.shape.cast.from()) : c.shape.element;
  c.target_element = c.shape.cast ? size_of(c.shape.cast.to()) : c.shape.element;
  c.target_span = lay_out(c.shape.digits, &lk::Digit::target, c.target_element, false);
  c.source_span = lay_out(c.shape.digits, &lk::Digit::source, c.source_element, true);
  return c;
}

void naive(const Case& c, const char* source, char* target, size_t depth = 0) {
  if (depth < c.shape.digits.size()) {
    const lk::Digit& digit = c.shape.digits[depth];
    for (int64_t i = 0; i < digit.extent; ++i)
      naive(c, source == nullptr ? nullptr : source + i * digit.source, target + i * digit.target, depth + 1);
  } else if (source == nullptr) {
    std::fill_n(target, c.target_element, 0);
  } else if (c.shape.cast && c.shape.cast.from() != c.shape.cast.to()) {
    lk::cast_rows(c.shape.cast).front()(target, source, 1, 0, 0);
  } else {
    std::copy_n(source, c.target_element, target);
  }
}

Bytes random_bytes(int64_t size) {
  Bytes bytes(static_cast<size_t>(size));
  uint64_t bits = 0;
  for (size_t i = 0; i < bytes.size(); ++i, bits >>= 8) {
    if (i % 8 == 0) bits = random_bits();
    bytes[i] = static_cast<char>(bits);
  }
  return bytes;
}

[[noreturn]] void fail(uint64_t seed, const Case& c, int64_t byte) {
  std::printf("seed %llu: byte %lld differs; element %lld, cast %d\n", static_cast<unsigned long long>(seed),
              static_cast<long long>(byte), static_cast<long long>(c.shape.element), c.shape.cast.code);
  for (const lk::Digit& d : c.shape.digits)
    std::printf("  extent %lld source %lld target %lld\n", static_cast<long long>(d.extent),
                static_cast<long long>(d.source), static_cast<long long>(d.target));
  std::exit(1);
}

uint64_t address(const char* pointer) {
  return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(pointer));
}

// One block with memory of its own. The source is exactly as large as what may be read, so that a sanitizer
// sees a byte too many; the target has guards, so that we do.
struct Placed {
  Case c;
  Bytes source, want, got;
  int64_t source_shift, target_shift;
  bool zero;

  explicit Placed(const Case& of)
      : c(of), source_shift(below(2) * below(16)), target_shift(below(2) * below(64)) {
    zero = below(10) == 0;
    source = random_bytes(c.source_span + source_shift);
    want = got = random_bytes(c.target_span + 2 * guard + target_shift);
    naive(c, from(), to(want));
  }

  const char* from() const { return zero ? nullptr : source.data() + source_shift; }
  char* to(Bytes& bytes) const { return bytes.data() + guard + target_shift; }
};

// Up to three shapes, each once if large and many times if tiny.
void try_table(uint64_t seed, std::set<lk::Kind>& kinds) {
  random_bits.seed(seed);
  lk::Table table;
  std::vector<Placed> all;
  const auto shapes = static_cast<int32_t>(1 + below(3));
  for (int32_t shape = 0; shape < shapes; ++shape) {
    const Case c = random_case();
    table.shapes.push_back(c.shape);
    kinds.insert(lk::copy_recipe(c.shape).kind);
    for (int64_t i = elements(c.shape) < 100 ? 1 + below(40) : 1; i > 0; --i) {
      all.emplace_back(c);
      table.blocks.push_back({shape, address(all.back().from()), 0});
    }
  }
  for (size_t i = 0; i < all.size(); ++i) table.blocks[i].target = address(all[i].to(all[i].got));
  const lk::Executor executor(table, static_cast<int>(1 + below(3)), below(2) == 0 ? 0 : INT64_MAX);
  for (int times = 0; times < 2; ++times) executor.run();
  for (const Placed& placed : all) {
    const auto differ = std::mismatch(placed.want.begin(), placed.want.end(), placed.got.begin());
    if (differ.first != placed.want.end())
      fail(seed, placed.c, differ.first - placed.want.begin() - guard - placed.target_shift);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const uint64_t rounds = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 2000;
  std::set<lk::Kind> kinds;
  for (uint64_t i = 0; i < rounds; ++i) try_table(seed + i, kinds);
  std::printf("%llu tables agree, %zu kinds of kernel\n", static_cast<unsigned long long>(rounds),
              kinds.size());
  return rounds >= 1000 && kinds.size() < 4 ? 1 : 0;
}

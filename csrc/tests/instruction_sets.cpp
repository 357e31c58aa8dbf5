// SPDX-License-Identifier: Apache-2.0
// Every variant that this machine can run gives the same bits as the plainest one.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "cast.h"
#include "lines.h"

namespace lk = layout_kernels;

namespace {

std::mt19937_64 random_bits(1);

void want(bool holds, const char* what, int64_t a, int64_t b) {
  if (holds) return;
  std::printf("%s: %lld, %lld\n", what, static_cast<long long>(a), static_cast<long long>(b));
  std::exit(1);
}

void check_lines(int64_t size) {
  const int64_t side = 64 / size;
  std::vector<char> tile(static_cast<size_t>(64 * side));
  for (char& byte : tile) byte = static_cast<char>(random_bits());
  for (const lk::WriteLines write_lines : lk::line_writers(size))
    for (int64_t width = 1; width <= side; ++width)
      for (const bool past_cache : {false, true}) {
        alignas(64) char lines[65][64] = {};
        char* to[64];
        for (int64_t i = 0; i < side; ++i) to[i] = lines[side - 1 - i];
        write_lines(to, tile.data(), 64, width, past_cache);
        for (int64_t i = 0; i < width; ++i)
          for (int64_t j = 0; j < side; ++j)
            want(std::memcmp(to[i] + j * size, tile.data() + j * 64 + i * size, static_cast<size_t>(size)) ==
                     0,
                 "transpose differs; size and width", size, width);
        for (int64_t i = width; i < side; ++i)
          want(std::count(to[i], to[i] + 64, 0) == 64, "transpose wrote too much; size and width", size,
               width);
      }
}

// All 16-bit numbers, or many 32-bit ones: every exponent with the bits round which rounding turns.
std::vector<uint32_t> numbers(lk::Number from) {
  std::vector<uint32_t> all;
  if (from != lk::Number::float32) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) all.push_back(bits);
    return all;
  }
  for (uint32_t exponent = 0; exponent < 512; ++exponent)
    for (int i = 0; i < 500; ++i) {
      const auto fraction = static_cast<uint32_t>(random_bits());
      const uint32_t ties[] = {fraction,
                               fraction & 0x7fe000u,
                               (fraction & 0x7fe000u) | 0x1000u,
                               fraction & 0x7f0000u,
                               (fraction & 0x7f0000u) | 0x8000u,
                               (fraction & 0x7f0000u) | 0x7fffu,
                               fraction & 7u};
      all.push_back(exponent << 23 | (ties[i % 7] & 0x7fffffu));
    }
  return all;
}

std::vector<char> packed(const std::vector<uint32_t>& all, int64_t size) {
  std::vector<char> bytes(all.size() * static_cast<size_t>(size));
  for (size_t i = 0; i < all.size(); ++i)
    std::memcpy(&bytes[i * static_cast<size_t>(size)], &all[i], static_cast<size_t>(size));
  return bytes;
}

uint32_t bits_at(const std::vector<char>& bytes, size_t i, int64_t size) {
  uint32_t bits = 0;
  std::memcpy(&bits, &bytes[i * static_cast<size_t>(size)], static_cast<size_t>(size));
  return bits;
}

struct Format {
  int fraction, bias, top;  // bits of fraction, bias and largest field of the exponent
};

Format format(lk::Number number) {
  return number == lk::Number::bfloat16  ? Format{7, 127, 255}
         : number == lk::Number::float16 ? Format{10, 15, 31}
                                         : Format{23, 127, 255};
}

bool sign_of(uint32_t bits, const Format& f) {
  return bits >> (f.fraction + (f.top == 31 ? 5 : 8)) != 0;
}

double value(uint32_t bits, const Format& f) {
  const int exponent = static_cast<int>(bits >> f.fraction) & f.top;
  const double fraction = static_cast<double>(bits & ((1u << f.fraction) - 1));
  const double size = exponent == f.top ? (fraction == 0 ? INFINITY : NAN)
                      : exponent == 0
                          ? std::ldexp(fraction, 1 - f.bias - f.fraction)
                          : std::ldexp(fraction + std::ldexp(1, f.fraction), exponent - f.bias - f.fraction);
  return sign_of(bits, f) ? -size : size;
}

// What a cast must give, told in another way: scale to whole steps of the target and let the library round.
double rounded(double x, const Format& f) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), 1 - f.bias) - f.fraction;
  const double near = std::ldexp(std::nearbyint(std::ldexp(x, -exponent)), exponent);
  return std::fabs(near) >= std::ldexp(1, f.top - f.bias) ? std::copysign(INFINITY, x) : near;
}

void check_cast(lk::Cast cast) {
  const int64_t from_size = size_of(cast.from()), to_size = size_of(cast.to());
  const Format from = format(cast.from()), to = format(cast.to());
  const std::vector<uint32_t> all = numbers(cast.from());
  const std::vector<char> source = packed(all, from_size);
  for (const lk::CastRow row : lk::cast_rows(cast)) {
    std::vector<char> target(all.size() * static_cast<size_t>(to_size));
    row(target.data(), source.data(), static_cast<int64_t>(all.size()), to_size, from_size);
    for (size_t i = 0; i < all.size(); ++i) {
      const uint32_t bits = bits_at(target, i, to_size);
      const double x = rounded(value(all[i], from), to), y = value(bits, to);
      want(sign_of(all[i], from) == sign_of(bits, to), "cast loses the sign; code and bits", cast.code,
           all[i]);
      want(std::isnan(x) ? std::isnan(y) && (bits >> (to.fraction - 1) & 1) : x == y,
           "cast is wrong; code and bits", cast.code, all[i]);
    }
    if (row == lk::cast_rows(cast).front()) continue;
    std::vector<char> plain(target.size());
    lk::cast_rows(cast).front()(plain.data(), source.data(), static_cast<int64_t>(all.size()), to_size,
                                from_size);
    want(plain == target, "variants of a cast differ; code", cast.code, 0);
  }
}

}  // namespace

int main() {
  for (const int64_t size : {1, 2, 4, 8, 16}) check_lines(size);
  for (int32_t code = 1; code <= 9; ++code)
    if (lk::Cast{code}.from() != lk::Cast{code}.to()) check_cast({code});
  std::printf("%zu variants of lines, %zu of casts agree\n", lk::line_writers(2).size(),
              lk::cast_rows({2}).size());
}

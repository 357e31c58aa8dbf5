// SPDX-License-Identifier: Apache-2.0
#include "cast.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace layout_kernels {
namespace {

// All arithmetic is on float32 bits in integers: exact on every machine, whatever the rounding mode, and the
// compiler turns it into vectors.

struct Float32 {
  using Bits = uint32_t;
  static uint32_t widen(uint32_t bits) { return bits; }
  static uint32_t narrow(uint32_t bits) { return bits; }
};

constexpr uint32_t magnitude = 0x7fffffffu;
constexpr uint32_t infinity = 0x7f800000u;
constexpr uint32_t quiet = 0x00400000u;

uint32_t quieted(uint32_t bits) {
  return (bits & magnitude) > infinity ? bits | quiet : bits;
}

struct BFloat16 {
  using Bits = uint16_t;
  static uint32_t widen(uint16_t bits) { return quieted(static_cast<uint32_t>(bits) << 16); }
  static uint16_t narrow(uint32_t bits) {
    const uint32_t rounded =
        bits + 0x7fffu + ((bits >> 16) & 1u);  // carries into the exponent, up to infinity
    return static_cast<uint16_t>(((bits & magnitude) > infinity ? bits | quiet : rounded) >> 16);
  }
};

float as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

uint32_t as_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

struct Float16 {
  using Bits = uint16_t;

  static uint32_t widen(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const uint32_t shifted = static_cast<uint32_t>(half & 0x7fffu) << 13;
    const uint32_t normal = shifted + (112u << 23);  // the exponents' biases differ by 112
    const uint32_t special = shifted | infinity;     // infinity and NaN
    const uint32_t small =
        as_bits(static_cast<float>(half & 0x3ffu) * 0x1p-24f);  // subnormal: exact in float32
    const uint32_t exponent = half & 0x7c00u;
    return sign | quieted(exponent == 0x7c00u ? special : exponent == 0 ? small : normal);
  }

  static uint16_t narrow(uint32_t bits) {
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t size = bits & magnitude;
    const uint32_t normal = (size - (112u << 23) + 0xfffu + ((size >> 13) & 1u)) >> 13;
    // Adding 0.5 leaves multiples of 2**-24, the step of subnormals, in the low bits, rounded by the
    // addition.
    const uint32_t small = as_bits(as_float(size < 0x38800000u ? size : 0u) + 0.5f) - 0x3f000000u;
    const uint32_t special = size > infinity ? 0x7e00u | ((size >> 13) & 0x3ffu) : 0x7c00u;
    // From 65520 on the nearest float16 is infinity.
    return static_cast<uint16_t>(sign | (size < 0x38800000u ? small : size < 0x477ff000u ? normal : special));
  }
};

template <typename From, typename To>
void cast_one(char* target, const char* source) {
  typename From::Bits from;
  std::memcpy(&from, source, sizeof from);
  const auto to = static_cast<typename To::Bits>(To::narrow(From::widen(from)));
  std::memcpy(target, &to, sizeof to);
}

template <typename From, typename To>
void cast_numbers(char* target, const char* source, int64_t count, int64_t target_stride,
                  int64_t source_stride) {
  constexpr int64_t from_size = sizeof(typename From::Bits), to_size = sizeof(typename To::Bits);
  if (target_stride == to_size && source_stride == from_size)
    for (int64_t i = 0; i < count; ++i) cast_one<From, To>(target + i * to_size, source + i * from_size);
  else
    for (int64_t i = 0; i < count; ++i)
      cast_one<From, To>(target + i * target_stride, source + i * source_stride);
}

using Rows = const CastRow[9];

constexpr Rows plain_rows = {
    cast_numbers<BFloat16, BFloat16>, cast_numbers<BFloat16, Float16>, cast_numbers<BFloat16, Float32>,
    cast_numbers<Float16, BFloat16>,  cast_numbers<Float16, Float16>,  cast_numbers<Float16, Float32>,
    cast_numbers<Float32, BFloat16>,  cast_numbers<Float32, Float16>,  cast_numbers<Float32, Float32>};

#if defined(__x86_64__)

// Eight at a time, with the machine's own float16 conversions: the same bits as above, NaN included.

#define LK_TARGET __attribute__((always_inline, target("avx2,f16c"))) inline

LK_TARGET __m256i quieted8(__m256i bits, __m256i otherwise) {
  const __m256i size = _mm256_and_si256(bits, _mm256_set1_epi32(magnitude));
  const __m256i is_nan = _mm256_cmpgt_epi32(size, _mm256_set1_epi32(infinity));
  return _mm256_blendv_epi8(otherwise, _mm256_or_si256(bits, _mm256_set1_epi32(quiet)), is_nan);
}

LK_TARGET __m128i load8(const char* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

LK_TARGET __m256i widen8(BFloat16, const char* from) {
  const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(load8(from)), 16);
  return quieted8(bits, bits);
}

LK_TARGET __m256i widen8(Float16, const char* from) {
  return _mm256_castps_si256(_mm256_cvtph_ps(load8(from)));
}

LK_TARGET __m256i widen8(Float32, const char* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

LK_TARGET void narrow8(BFloat16, char* to, __m256i bits) {
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i top = _mm256_srli_epi32(quieted8(bits, rounded), 16);
  const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), packed);
}

LK_TARGET void narrow8(Float16, char* to, __m256i bits) {
  const __m128i half =
      _mm256_cvtps_ph(_mm256_castsi256_ps(bits), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), half);
}

LK_TARGET void narrow8(Float32, char* to, __m256i bits) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bits);
}

template <typename From, typename To>
__attribute__((target("avx2,f16c"))) void cast_vectors(char* target, const char* source, int64_t count,
                                                       int64_t target_stride, int64_t source_stride) {
  constexpr int64_t from_size = sizeof(typename From::Bits), to_size = sizeof(typename To::Bits);
  int64_t i = 0;
  if (target_stride == to_size && source_stride == from_size)
    for (; i + 8 <= count; i += 8)
      narrow8(To{}, target + i * to_size, widen8(From{}, source + i * from_size));
  if (i < count)
    cast_numbers<From, To>(target + i * target_stride, source + i * source_stride, count - i, target_stride,
                           source_stride);
}

#undef LK_TARGET

constexpr Rows vector_rows = {
    cast_vectors<BFloat16, BFloat16>, cast_vectors<BFloat16, Float16>, cast_vectors<BFloat16, Float32>,
    cast_vectors<Float16, BFloat16>,  cast_vectors<Float16, Float16>,  cast_vectors<Float16, Float32>,
    cast_vectors<Float32, BFloat16>,  cast_vectors<Float32, Float16>,  cast_vectors<Float32, Float32>};

#endif

}  // namespace

std::vector<CastRow> cast_rows(Cast cast) {
  std::vector<CastRow> rows{plain_rows[cast.code - 1]};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"))
    rows.push_back(vector_rows[cast.code - 1]);
#endif
  return rows;
}

}  // namespace layout_kernels

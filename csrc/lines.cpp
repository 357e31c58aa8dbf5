// SPDX-License-Identifier: Apache-2.0
#include "lines.h"

#include "vector.h"

#if defined(__x86_64__)
#include <immintrin.h>
#if !defined(__clang__)
// GCC's own AVX-512 header passes undefined vectors on, and warns of it where it is inlined.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#endif

namespace layout_kernels {
namespace {

namespace lanes1 {  // SSE2, NEON

#define LK_TARGET __attribute__((always_inline)) inline
#define LK_ENTRY

using Wide = Vector;

LK_TARGET Wide gather(const char* row, int64_t) {
  return load(row);
}
LK_TARGET void write(char* to, Wide wide) {
  store(to, wide);
}
LK_TARGET void write_past_cache(char* to, Wide wide) {
  store_past_cache(to, wide);
}

#include "lines.inl"

#undef LK_TARGET
#undef LK_ENTRY

}  // namespace lanes1

#if defined(__x86_64__)

namespace lanes2 {

#define LK_TARGET __attribute__((always_inline, target("avx2"))) inline
#define LK_ENTRY __attribute__((target("avx2")))

using Wide = __m256i;

LK_TARGET __m128i lane(const char* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
LK_TARGET Wide gather(const char* row, int64_t step) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(lane(row)), lane(row + step), 1);
}
LK_TARGET void write(char* to, Wide wide) {
  _mm256_storeu_si256(reinterpret_cast<Wide*>(to), wide);
}
LK_TARGET void write_past_cache(char* to, Wide wide) {
  _mm256_stream_si256(reinterpret_cast<Wide*>(to), wide);
}
template <int size>
LK_TARGET Wide zip_low(Wide a, Wide b) {
  if constexpr (size == 1) return _mm256_unpacklo_epi8(a, b);
  if constexpr (size == 2) return _mm256_unpacklo_epi16(a, b);
  if constexpr (size == 4) return _mm256_unpacklo_epi32(a, b);
  return _mm256_unpacklo_epi64(a, b);
}
template <int size>
LK_TARGET Wide zip_high(Wide a, Wide b) {
  if constexpr (size == 1) return _mm256_unpackhi_epi8(a, b);
  if constexpr (size == 2) return _mm256_unpackhi_epi16(a, b);
  if constexpr (size == 4) return _mm256_unpackhi_epi32(a, b);
  return _mm256_unpackhi_epi64(a, b);
}

#include "lines.inl"

#undef LK_TARGET
#undef LK_ENTRY

}  // namespace lanes2

namespace lanes4 {

#define LK_TARGET __attribute__((always_inline, target("avx512f,avx512bw"))) inline
#define LK_ENTRY __attribute__((target("avx512f,avx512bw")))

using Wide = __m512i;

LK_TARGET __m128i lane(const char* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
LK_TARGET Wide gather(const char* row, int64_t step) {
  Wide wide = _mm512_castsi128_si512(lane(row));
  wide = _mm512_inserti32x4(wide, lane(row + step), 1);
  wide = _mm512_inserti32x4(wide, lane(row + 2 * step), 2);
  return _mm512_inserti32x4(wide, lane(row + 3 * step), 3);
}
LK_TARGET void write(char* to, Wide wide) {
  _mm512_storeu_si512(to, wide);
}
LK_TARGET void write_past_cache(char* to, Wide wide) {
  _mm512_stream_si512(reinterpret_cast<Wide*>(to), wide);
}
template <int size>
LK_TARGET Wide zip_low(Wide a, Wide b) {
  if constexpr (size == 1) return _mm512_unpacklo_epi8(a, b);
  if constexpr (size == 2) return _mm512_unpacklo_epi16(a, b);
  if constexpr (size == 4) return _mm512_unpacklo_epi32(a, b);
  return _mm512_unpacklo_epi64(a, b);
}
template <int size>
LK_TARGET Wide zip_high(Wide a, Wide b) {
  if constexpr (size == 1) return _mm512_unpackhi_epi8(a, b);
  if constexpr (size == 2) return _mm512_unpackhi_epi16(a, b);
  if constexpr (size == 4) return _mm512_unpackhi_epi32(a, b);
  return _mm512_unpackhi_epi64(a, b);
}

#include "lines.inl"

#undef LK_TARGET
#undef LK_ENTRY

}  // namespace lanes4

#endif

}  // namespace

std::vector<WriteLines> line_writers(int64_t size) {
  std::vector<WriteLines> writers{lanes1::writer(size)};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) writers.push_back(lanes2::writer(size));
  if (__builtin_cpu_supports("avx512bw")) writers.push_back(lanes4::writer(size));
#endif
  return writers;
}

}  // namespace layout_kernels

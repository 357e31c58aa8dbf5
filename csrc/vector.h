// SPDX-License-Identifier: Apache-2.0
// Sixteen bytes at a time, in the vector extensions that GCC and Clang share, so that x86-64 and arm64 read
// the same source. Only streaming stores need to know the machine.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace layout_kernels {

typedef uint8_t Vector __attribute__((vector_size(16)));
typedef uint16_t Vector2 __attribute__((vector_size(16)));
typedef uint32_t Vector4 __attribute__((vector_size(16)));
typedef uint64_t Vector8 __attribute__((vector_size(16)));

inline Vector load(const char* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

inline void store(char* to, Vector vector) {
  std::memcpy(to, &vector, sizeof vector);
}

// Past the caches; `to` is aligned to 16 bytes. A line must be written whole, or the bus carries it in parts.
inline void store_past_cache(char* to, Vector vector) {
#if defined(__SSE2__)
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), reinterpret_cast<__m128i>(vector));
#else
  store(to, vector);
#endif
}

// Streaming stores are unordered; another thread may read what came before this.
inline void finish_streaming() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// Elements of `size` bytes taken in turn from the lower (or upper) halves of two vectors.
template <int size>
Vector zip_low(Vector a, Vector b) {
  if constexpr (size == 1)
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  else if constexpr (size == 2)
    return (Vector)__builtin_shufflevector((Vector2)a, (Vector2)b, 0, 8, 1, 9, 2, 10, 3, 11);
  else if constexpr (size == 4)
    return (Vector)__builtin_shufflevector((Vector4)a, (Vector4)b, 0, 4, 1, 5);
  else
    return (Vector)__builtin_shufflevector((Vector8)a, (Vector8)b, 0, 2);
}

template <int size>
Vector zip_high(Vector a, Vector b) {
  if constexpr (size == 1)
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  else if constexpr (size == 2)
    return (Vector)__builtin_shufflevector((Vector2)a, (Vector2)b, 4, 12, 5, 13, 6, 14, 7, 15);
  else if constexpr (size == 4)
    return (Vector)__builtin_shufflevector((Vector4)a, (Vector4)b, 2, 6, 3, 7);
  else
    return (Vector)__builtin_shufflevector((Vector8)a, (Vector8)b, 1, 3);
}

// Every second element of two vectors laid end to end, from the first (or second) on.
template <int size>
Vector take_even(Vector a, Vector b) {
  if constexpr (size == 1)
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  else if constexpr (size == 2)
    return (Vector)__builtin_shufflevector((Vector2)a, (Vector2)b, 0, 2, 4, 6, 8, 10, 12, 14);
  else if constexpr (size == 4)
    return (Vector)__builtin_shufflevector((Vector4)a, (Vector4)b, 0, 2, 4, 6);
  else
    return zip_low<8>(a, b);
}

template <int size>
Vector take_odd(Vector a, Vector b) {
  if constexpr (size == 1)
    return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  else if constexpr (size == 2)
    return (Vector)__builtin_shufflevector((Vector2)a, (Vector2)b, 1, 3, 5, 7, 9, 11, 13, 15);
  else if constexpr (size == 4)
    return (Vector)__builtin_shufflevector((Vector4)a, (Vector4)b, 1, 3, 5, 7);
  else
    return zip_high<8>(a, b);
}

}  // namespace layout_kernels

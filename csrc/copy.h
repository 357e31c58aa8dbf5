// SPDX-License-Identifier: Apache-2.0
// Contiguous bytes.
#pragma once

#include <cstdint>
#include <cstring>

#include "vector.h"

namespace layout_kernels {

constexpr int64_t cache_line = 64;

inline int64_t misalignment(const char* address, int64_t grain) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(address) & static_cast<uintptr_t>(grain - 1));
}

// Writes past the caches, whole lines only; the ends of the run go the ordinary way.
void stream_copy(char* target, const char* source, int64_t nbytes) noexcept;

// The same for a multiple of 16 bytes to an aligned target, whose neighbours the caller writes as well.
inline void stream_vectors(char* target, const char* source, int64_t nbytes) {
  for (int64_t i = 0; i < nbytes; i += 16) store_past_cache(target + i, load(source + i));
}

inline void copy_bytes(char* target, const char* source, int64_t nbytes, bool streaming) {
  if (streaming)
    stream_copy(target, source, nbytes);
  else
    std::memcpy(target, source, static_cast<size_t>(nbytes));
}

// A few bytes without a call: two overlapping moves of the largest fitting size.
template <typename Word>
void copy_ends(char* target, const char* source, int64_t nbytes) {
  Word first, last;
  const auto tail = nbytes - static_cast<int64_t>(sizeof(Word));
  std::memcpy(&first, source, sizeof first);
  std::memcpy(&last, source + tail, sizeof last);
  std::memcpy(target, &first, sizeof first);
  std::memcpy(target + tail, &last, sizeof last);
}

inline void copy_few(char* target, const char* source, int64_t nbytes) {
  if (nbytes > 32)
    std::memcpy(target, source, static_cast<size_t>(nbytes));
  else if (nbytes >= 16)
    copy_ends<Vector>(target, source, nbytes);
  else if (nbytes >= 8)
    copy_ends<uint64_t>(target, source, nbytes);
  else if (nbytes >= 4)
    copy_ends<uint32_t>(target, source, nbytes);
  else if (nbytes >= 2)
    copy_ends<uint16_t>(target, source, nbytes);
  else if (nbytes == 1)
    *target = *source;
}

// The unit of a kernel: its size is known to the compiler, or (0) only to the table.
template <int size>
struct Unit {
  int64_t nbytes;
  void copy(char* target, const char* source) const {
    if constexpr (size == 0)
      copy_few(target, source, nbytes);
    else
      std::memcpy(target, source, size);
  }
};

// Calls `body(Unit<size>)` with the size that fits.
template <typename Body>
void with_unit(int64_t nbytes, Body&& body) {
  switch (nbytes) {
    case 1:
      return body(Unit<1>{1});
    case 2:
      return body(Unit<2>{2});
    case 4:
      return body(Unit<4>{4});
    case 8:
      return body(Unit<8>{8});
    case 16:
      return body(Unit<16>{16});
    case 32:
      return body(Unit<32>{32});
    default:
      return body(Unit<0>{nbytes});
  }
}

}  // namespace layout_kernels

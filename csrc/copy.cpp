// SPDX-License-Identifier: Apache-2.0
#include "copy.h"

#include <algorithm>

namespace layout_kernels {

void stream_copy(char* target, const char* source, int64_t nbytes) noexcept {
  const int64_t head = std::min(nbytes, (cache_line - misalignment(target, cache_line)) % cache_line);
  std::memcpy(target, source, static_cast<size_t>(head));
  int64_t at = head;
  for (; at + cache_line <= nbytes; at += cache_line) {
    const Vector a = load(source + at), b = load(source + at + 16);
    const Vector c = load(source + at + 32), d = load(source + at + 48);
    store_past_cache(target + at, a);
    store_past_cache(target + at + 16, b);
    store_past_cache(target + at + 32, c);
    store_past_cache(target + at + 48, d);
  }
  std::memcpy(target + at, source + at, static_cast<size_t>(nbytes - at));
}

}  // namespace layout_kernels

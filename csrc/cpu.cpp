// SPDX-License-Identifier: Apache-2.0
#include "cpu.h"

namespace layout_kernels {

std::vector<std::string> features() {
  std::vector<std::string> found;
#if defined(__x86_64__)
  found.push_back("sse2");
  if (__builtin_cpu_supports("avx2")) found.push_back("avx2");
  if (__builtin_cpu_supports("avx512bw")) found.push_back("avx512bw");
#elif defined(__aarch64__)
  found.push_back("neon");
#endif
  return found;
}

}  // namespace layout_kernels

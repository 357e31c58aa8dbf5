// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace layout_kernels {

// The instruction sets of this machine that the kernels can use.
std::vector<std::string> features();

}  // namespace layout_kernels

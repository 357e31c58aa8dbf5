// SPDX-License-Identifier: Apache-2.0
#include "copy.h"
#include "kernels.h"

namespace layout_kernels {
namespace {

int64_t ceil_divide(int64_t number, int64_t by) {
  return (number + by - 1) / by;
}

}  // namespace

int64_t lead(const Recipe& recipe, const char* target) {
  const int64_t unit = recipe.target_unit;
  const bool same_for_all_rows = recipe.target_steps % cache_line == 0 && recipe.down.near() == unit;
  const int64_t past_line = misalignment(target, cache_line);
  if (!same_for_all_rows || past_line % unit != 0 || recipe.down.length() <= recipe.strip) return 0;
  return past_line / unit % recipe.strip;
}

std::array<int64_t, 2> pieces(const Recipe& recipe, const char* target) {
  if (recipe.kind != Kind::tiles) return {ceil_divide(recipe.inner.extent, recipe.segment), 1};
  return {ceil_divide(recipe.across.length(), recipe.segment),
          ceil_divide(recipe.down.length() + lead(recipe, target), recipe.strip)};
}

}  // namespace layout_kernels

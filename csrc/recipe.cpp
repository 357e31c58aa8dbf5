// SPDX-License-Identifier: Apache-2.0
#include "recipe.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>

namespace layout_kernels {
namespace {

constexpr int64_t line = 64;                // bytes of a cache line
constexpr int64_t long_run = 1024;          // from here on a run is worth a kernel call of its own
constexpr int64_t row_bytes = 128 * 1024;   // of one item of contiguous work
constexpr int64_t long_segment = 8 * 1024;  // bytes along a source row in one item of a transpose
constexpr int64_t short_segment = 1024;  // the same where strips share lines of the target: these stay cached
constexpr int64_t longest_chain = 1 << 18;  // positions whose offsets we are willing to keep

using Digits = std::vector<Digit>;

int64_t ceil_divide(int64_t number, int64_t by) {
  return (number + by - 1) / by;
}

Digits without_ones(const Digits& digits) {
  Digits kept;
  std::copy_if(digits.begin(), digits.end(), std::back_inserter(kept),
               [](const Digit& d) { return d.extent != 1; });
  return kept;
}

// Largest stride first; equal ones keep their order.
void sort_by(int64_t Digit::* stride, Digits& digits) {
  const auto before = [=](const Digit& a, const Digit& b) { return a.*stride > b.*stride; };
  for (auto at = digits.begin(); at != digits.end(); ++at)
    std::rotate(std::upper_bound(digits.begin(), at, *at, before), at, at + 1);
}

// Outermost first by target stride, so that a walk writes forwards; neighbours that step alike become one.
Digits coalesced(Digits digits) {
  sort_by(&Digit::target, digits);
  Digits merged;
  for (const Digit& digit : digits) {
    const bool continues = !merged.empty() && merged.back().source == digit.extent * digit.source &&
                           merged.back().target == digit.extent * digit.target;
    if (continues)
      merged.back() = {merged.back().extent * digit.extent, digit.source, digit.target};
    else
      merged.push_back(digit);
  }
  return merged;
}

int64_t product(const Digits& digits) {
  int64_t total = 1;
  for (const Digit& digit : digits) total *= digit.extent;
  return total;
}

// The innermost digit, where contiguous on both sides, becomes part of the unit.
void absorb_run(Recipe& recipe, Digits& digits) {
  if (digits.empty() || recipe.cast) return;
  const Digit& last = digits.back();
  if (last.source != recipe.source_unit || last.target != recipe.target_unit) return;
  recipe.source_unit = recipe.target_unit = last.extent * recipe.source_unit;
  digits.pop_back();
}

// A long run is a row of single bytes, so that it can be cut anywhere.
void spread_long_run(Recipe& recipe, Digits& digits) {
  if (recipe.cast || (recipe.source_unit < long_run && !digits.empty())) return;
  digits.push_back({recipe.source_unit, 1, 1});
  recipe.elements *= recipe.source_unit;
  recipe.source_unit = recipe.target_unit = 1;
}

size_t fastest_in_source(const Digits& digits) {
  size_t best = digits.size();
  for (size_t i = 0; i < digits.size(); ++i)
    if (digits[i].source > 0 && (best == digits.size() || digits[i].source <= digits[best].source)) best = i;
  return best;
}

// A processor waits for what it reads, not for what it writes: where runs are whole lines, read forwards.
void sort_for_reading(Digits& digits, int64_t run, int64_t steps) {
  if (run % line != 0 || steps % line != 0) return;
  sort_by(&Digit::source, digits);
}

// `digits` without the last, which becomes the inner loop.
void make_rows(Recipe& recipe, Digits digits) {
  recipe.kind = Kind::rows;
  recipe.segment = std::max<int64_t>(1, row_bytes / recipe.target_unit);
  if (digits.empty()) return;
  const Digit last = digits.back();
  const bool contiguous = last.source == recipe.source_unit && last.target == recipe.target_unit;
  if (contiguous) digits.pop_back();
  for (const Digit& digit : digits) recipe.target_steps |= digit.target;
  sort_for_reading(digits, contiguous ? last.extent * recipe.source_unit : recipe.source_unit,
                   recipe.target_steps);
  if (contiguous) digits.push_back(last);
  recipe.inner = digits.back();
  digits.pop_back();
  recipe.outer = digits;
}

// A pair of single elements beside each other on one side, and the same digit counting the pairs on both.
bool make_pairs(Recipe& recipe, const Digits& digits, size_t across) {
  const Digit& a = digits[across];
  const Digit& b = digits.back();
  const int64_t unit = recipe.source_unit;
  if (recipe.cast || unit > 8 || (unit & (unit - 1)) != 0 || a.source != unit || b.target != unit)
    return false;
  if (a.extent == 2 && b.source == 2 * unit) {
    recipe.kind = Kind::split;
    recipe.inner = b;
    recipe.other = a.target;
  } else if (b.extent == 2 && a.target == 2 * unit) {
    recipe.kind = Kind::merge;
    recipe.inner = a;
    recipe.other = b.source;
  } else {
    return false;
  }
  recipe.segment = row_bytes / (2 * unit);
  recipe.outer = digits;
  recipe.outer.pop_back();
  recipe.outer.erase(recipe.outer.begin() + static_cast<std::ptrdiff_t>(across));
  if (recipe.kind == Kind::split) recipe.target_steps = recipe.other;
  for (const Digit& digit : recipe.outer) recipe.target_steps |= digit.target;
  return true;
}

Chain::Link seen_from_source(const Digit& d) {
  return {d.extent, d.source, d.target};
}

Chain::Link seen_from_target(const Digit& d) {
  return {d.extent, d.target, d.source};
}

// Digits that continue a chain join it, the nearest first: (i [gate up]) is then one long row, not many
// pairs.
template <typename Seen>
Chain take_chain(const Digit& first, Digits& rest, Seen seen) {
  Chain chain(seen(first));
  for (bool grew = true; grew;) {
    grew = false;
    for (size_t i = rest.size(); i-- > 0 && !grew;) {
      grew = chain.grow(seen(rest[i]));
      if (grew) rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return chain;
}

WriteLines best_line_writer(const Recipe& recipe) {
  const int64_t unit = recipe.target_unit;
  const bool contiguous = recipe.across.near() == recipe.source_unit && recipe.down.near() == unit;
  return contiguous && unit <= 16 && (unit & (unit - 1)) == 0 ? line_writers(unit).back() : nullptr;
}

void make_tiles(Recipe& recipe, Digits digits, size_t across) {
  const Digit a = digits[across];
  const Digit b = digits.back();
  digits.pop_back();
  digits.erase(digits.begin() + static_cast<std::ptrdiff_t>(across));
  recipe.kind = Kind::tiles;
  recipe.across = take_chain(a, digits, seen_from_source);
  recipe.down = take_chain(b, digits, seen_from_target);
  recipe.outer = digits;
  recipe.target_steps = recipe.across.far_steps();
  for (const Digit& digit : digits) recipe.target_steps |= digit.target;
  recipe.strip = std::max<int64_t>(1, line / recipe.target_unit);
  recipe.write_lines = best_line_writer(recipe);
  const int64_t length = recipe.across.length();
  const bool whole_lines = recipe.target_steps % line == 0;
  const int64_t pieces = ceil_divide(length * recipe.source_unit, whole_lines ? long_segment : short_segment);
  recipe.segment = ceil_divide(ceil_divide(length, pieces), recipe.strip) * recipe.strip;
}

Recipe choose(const Shape& shape) {
  Recipe recipe;
  recipe.cast = shape.cast;
  if (shape.cast) recipe.cast_row = cast_rows(shape.cast).back();
  recipe.source_unit = shape.cast ? size_of(shape.cast.from()) : shape.element;
  recipe.target_unit = shape.cast ? size_of(shape.cast.to()) : shape.element;
  Digits digits = coalesced(without_ones(shape.digits));
  if (product(digits) == 0) return recipe;
  absorb_run(recipe, digits);
  recipe.elements = product(digits);
  spread_long_run(recipe, digits);
  if (digits.size() > max_rank)
    throw std::invalid_argument("a shape of " + std::to_string(digits.size()) +
                                " digits; at most 32 are supported");
  const size_t across = fastest_in_source(digits);
  const bool transposed = across + 1 < digits.size() && digits.back().source > 0 && recipe.source_unit < line;
  if (!transposed)
    make_rows(recipe, digits);
  else if (!make_pairs(recipe, digits, across))
    make_tiles(recipe, digits, across);
  return recipe;
}

}  // namespace

bool Chain::grow(const Link& link) {
  if (link.near != length_ * near_ || length_ * link.extent > longest_chain) return false;
  std::vector<int64_t> offsets(static_cast<size_t>(length_ * link.extent));
  for (int64_t i = 0; i < link.extent; ++i)
    for (int64_t p = 0; p < length_; ++p)
      offsets[static_cast<size_t>(i * length_ + p)] = i * link.far + far(p);
  offsets_ = std::move(offsets);
  length_ *= link.extent;
  far_steps_ |= link.far;
  return true;
}

Recipe copy_recipe(const Shape& shape) {
  Shape plain = shape;
  if (shape.cast && shape.cast.from() == shape.cast.to()) {
    plain.element = size_of(shape.cast.to());
    plain.cast = {};
  }
  return choose(plain);
}

Recipe zero_recipe(const Shape& shape) {
  Shape target = shape;
  if (shape.cast) target.element = size_of(shape.cast.to());
  target.cast = {};
  for (Digit& digit : target.digits) digit.source = digit.target;
  return choose(target);
}

}  // namespace layout_kernels

# SPDX-License-Identifier: Apache-2.0
"""Combs: the sets of whole numbers that layouts are made of, and the three things done with them.

A comb is ``{start + sum(weight * x) : 0 <= x < extent}`` over digits of falling weight, none of which reaches into the
next higher one. A range is a comb of one digit, a shard of a cut axis a comb of several. Every digit carries a
*payload*, any vector of numbers that grows with it: strides of memory beside coordinates, or coordinates beside
positions of memory. The number ``start + …`` has the payload ``origin + sum(payload * x)``.

* `clip` cuts a comb at two bounds.
* `meet` splits two combs into pairs of equal numbers, digit for digit, and what is left of the first.
* `between` fixes the highest digit to a range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

Vector = tuple[int, ...]


class CutsDoNotNestError(Exception):
    """Two combs whose digits do not divide each other: (weight of the first, weight of the second)."""


@dataclass(frozen=True, slots=True)
class Digit:
    """``extent`` steps of ``weight``; each moves the payload by ``payload``."""

    weight: int
    extent: int
    payload: Vector


@dataclass(frozen=True, slots=True)
class Comb:
    """A set of numbers with a payload each; see the module."""

    start: int
    digits: tuple[Digit, ...]
    origin: Vector

    @property
    def last(self) -> int:
        """The largest number."""
        return self.start + sum(digit.weight * (digit.extent - 1) for digit in self.digits)

    @property
    def size(self) -> int:
        """How many numbers."""
        return math.prod(digit.extent for digit in self.digits)


def add(a: Vector, b: Vector, times: int = 1) -> Vector:
    """``a + times * b``."""
    return tuple(x + times * y for x, y in zip(a, b, strict=True))


def between(comb: Comb, low: int, high: int) -> Comb:
    """The comb with its highest digit in ``low <= x < high``; a digit with one value left vanishes."""
    top, lower = comb.digits[0], comb.digits[1:]
    digits = lower if high - low == 1 else (Digit(top.weight, high - low, top.payload), *lower)
    return Comb(comb.start + low * top.weight, digits, add(comb.origin, top.payload, low))


def clip(comb: Comb, low: int, high: int) -> list[Comb]:
    """The numbers of the comb with ``low <= number < high``, as few combs."""
    if low <= comb.start and comb.last < high:
        return [comb]
    if not comb.digits or comb.last < low or comb.start >= high:
        return []
    top = comb.digits[0]
    reach = comb.last - comb.start - top.weight * (top.extent - 1)  # of the lower digits
    first = max(0, -((comb.start + reach - low) // top.weight))  # windows that meet the bounds at all
    final = min(top.extent - 1, (high - 1 - comb.start) // top.weight)
    inner = max(0, -((comb.start - low) // top.weight))  # windows wholly inside
    outer = min(top.extent - 1, (high - 1 - reach - comb.start) // top.weight)
    if inner > outer:
        return [part for x in range(first, final + 1) for part in clip(between(comb, x, x + 1), low, high)]
    before = [part for x in range(first, inner) for part in clip(between(comb, x, x + 1), low, high)]
    after = [part for x in range(outer + 1, final + 1) for part in clip(between(comb, x, x + 1), low, high)]
    return [*before, between(comb, inner, outer + 1), *after]


def meet(one: Comb, two: Comb) -> tuple[list[tuple[Comb, Comb]], list[Comb]]:
    """Pairs (part of ``one``, part of ``two``) with the same numbers and digits, and the rest of ``one``.

    Raises
    ------
    CutsDoNotNestError
        Where the digits of the two do not divide each other.
    """
    if one.last < two.start or two.last < one.start:
        return [], [one]
    if one.start == two.start and _steps(one) == _steps(two):
        return [(one, two)], []
    ours, theirs = (comb.digits[0].weight if comb.digits else 0 for comb in (one, two))
    if ours > theirs:
        return _meet_windows(one, two)
    if ours < theirs:
        return _meet_inside(one, two)
    return _meet_equal(one, two)


def _steps(comb: Comb) -> list[Vector]:
    return [(digit.weight, digit.extent) for digit in comb.digits]


def _reach(comb: Comb) -> int:
    """How far the digits below the highest one reach."""
    return comb.last - comb.start - (comb.digits[0].weight * (comb.digits[0].extent - 1) if comb.digits else 0)


# A digit of weight w cuts the numbers into windows of w, one for each of its values:
#
#     numbers            0  1  2  3  4  5  6  7  8  9 10 11
#     windows of 4      |0  .  .  .|1  .  .  .|2  .  .  . |
#     a comb             .  .  2  3  .  .  6  7  .  . 10 11     start 2, digits (4, 3) and (1, 2)
#
# Where a comb holds only part of each window, as here (rank 1 of an inner part), its first number does not say where
# windows begin. They begin at multiples of w where the whole axis is cut, and elsewhere wherever nothing that either
# comb holds together lies across a boundary.


def _meet_windows(one: Comb, two: Comb) -> tuple[list[tuple[Comb, Comb]], list[Comb]]:
    """``one`` has the higher digit: each part of ``two`` is brought into a window of it."""
    lead = _lead(two, one)
    pairs, rest = [], [one]
    for part in _at_windows(two, one, lead):
        left: list[Comb] = []
        for comb in rest:
            found, missed = meet(comb, part) if comb.digits[:1] != one.digits[:1] else _in_window(comb, part, lead)
            pairs += found
            left += missed
        rest = left
    return pairs, rest


def _meet_inside(one: Comb, two: Comb) -> tuple[list[tuple[Comb, Comb]], list[Comb]]:
    """``two`` has the higher digit: each part of ``one`` is brought into a window of it."""
    lead = _lead(one, two)
    pairs, rest = [], []
    for part in _at_windows(one, two, lead):
        if part.digits and part.digits[0].weight == two.digits[0].weight:
            found, missed = _meet_equal(part, two)
        else:
            x = _window(part, two, lead)
            found, missed = ([], [part]) if x is None else meet(part, _lower(two, x))
        pairs += found
        rest += missed
    return pairs, rest


def _in_window(one: Comb, two: Comb, lead: int) -> tuple[list[tuple[Comb, Comb]], list[Comb]]:
    """``two`` has the same highest digit as ``one``, or lies within a single window of it."""
    if two.digits and two.digits[0].weight == one.digits[0].weight:
        return _meet_equal(one, two)
    x = _window(two, one, lead)
    if x is None:
        return [], [one]
    pairs, rest = meet(_lower(one, x), two)
    return pairs, _outside(one, x, x + 1) + rest


def _meet_equal(one: Comb, two: Comb) -> tuple[list[tuple[Comb, Comb]], list[Comb]]:
    """Highest digits of one weight: match the windows that coincide, then what is inside them."""
    top, other = one.digits[0], two.digits[0]
    shift = _apart(one, two)
    low, high = max(0, shift), min(top.extent, shift + other.extent)
    if low >= high:
        return [], [one]
    pairs, rest = meet(_lower(one, low), _lower(two, low - shift))
    matched = [(_higher(a, top, high - low), _higher(b, other, high - low)) for a, b in pairs]
    return matched, _outside(one, low, high) + [_higher(comb, top, high - low) for comb in rest]


def _apart(one: Comb, two: Comb) -> int:
    """How many windows ``two`` begins after ``one``, both having a highest digit of one weight."""
    weight = one.digits[0].weight
    for begin in (0, one.start, two.start):
        ours, theirs = (divmod(comb.start - begin, weight) for comb in (one, two))
        if ours[1] + _reach(one) < weight and theirs[1] + _reach(two) < weight:
            return theirs[0] - ours[0]
    raise CutsDoNotNestError(weight, weight)


def _lead(comb: Comb, frame: Comb) -> int:
    """How far before the first number of ``frame`` its windows begin, for cutting ``comb`` at them."""
    weight = frame.digits[0].weight
    step = comb.digits[0].weight if comb.digits else weight
    for lead in (frame.start % weight, 0, (frame.start - comb.start) % step):
        first, last = (number - frame.start + lead for number in (comb.start, comb.last))
        nested = weight % step == 0 and first % step + _reach(comb) < step
        if lead + _reach(frame) < weight and (nested or first // weight == last // weight):
            return lead
    raise CutsDoNotNestError(weight, step)


def _window(part: Comb, frame: Comb, lead: int) -> int | None:
    """The window of ``frame`` in which ``part`` lies, if it has one there."""
    x = (part.start - frame.start + lead) // frame.digits[0].weight
    return x if 0 <= x < frame.digits[0].extent else None


def _at_windows(comb: Comb, frame: Comb, lead: int) -> list[Comb]:
    """``comb`` cut where the windows of ``frame`` begin: parts within one window, and one that steps by windows."""
    weight = frame.digits[0].weight
    window, phase = divmod(comb.start - frame.start + lead, weight)
    if window == (comb.last - frame.start + lead) // weight:
        return [comb]
    top = comb.digits[0]
    per_window = weight // top.weight
    first = 0 if phase < top.weight else -((phase - weight) // top.weight)  # x at which the first window begins
    windows = (top.extent - first) // per_window
    end = first + windows * per_window
    parts = [between(comb, 0, first)] if first else []
    if windows:
        middle = between(comb, first, first + per_window)
        across = Digit(weight, windows, tuple(per_window * step for step in top.payload))
        parts.append(_higher(middle, across, windows))
    return parts + ([between(comb, end, top.extent)] if end < top.extent else [])


def _lower(comb: Comb, x: int) -> Comb:
    """The comb at one value of its highest digit."""
    return between(comb, x, x + 1)


def _higher(comb: Comb, top: Digit, extent: int) -> Comb:
    """The comb with ``extent`` values of a highest digit put back."""
    digits = comb.digits if extent == 1 else (Digit(top.weight, extent, top.payload), *comb.digits)
    return Comb(comb.start, digits, comb.origin)


def _outside(comb: Comb, low: int, high: int) -> list[Comb]:
    """The comb without ``low <= x < high`` of its highest digit."""
    extent = comb.digits[0].extent
    return [between(comb, a, b) for a, b in ((0, low), (high, extent)) if a < b]

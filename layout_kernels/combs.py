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


def _meet_windows(one: Comb, two: Comb) -> tuple[list[tuple[Comb, Comb]], list[Comb]]:
    """``one`` has the higher digit: each part of ``two`` is brought into a window of it."""
    pairs, rest = [], [one]
    for part in _at_windows(two, one):
        left: list[Comb] = []
        for comb in rest:
            found, missed = meet(comb, part) if comb.digits[:1] != one.digits[:1] else _in_window(comb, part)
            pairs += found
            left += missed
        rest = left
    return pairs, rest


def _meet_inside(one: Comb, two: Comb) -> tuple[list[tuple[Comb, Comb]], list[Comb]]:
    """``two`` has the higher digit: each part of ``one`` is brought into a window of it."""
    pairs, rest = [], []
    for part in _at_windows(one, two):
        if part.digits and part.digits[0].weight == two.digits[0].weight:
            found, missed = _meet_equal(part, two)
        else:
            window = _window(part, two)
            found, missed = ([], [part]) if window is None else meet(part, window)
        pairs += found
        rest += missed
    return pairs, rest


def _in_window(one: Comb, two: Comb) -> tuple[list[tuple[Comb, Comb]], list[Comb]]:
    """``two`` has the same highest digit as ``one``, or lies within a single window of it."""
    if two.digits and two.digits[0].weight == one.digits[0].weight:
        return _meet_equal(one, two)
    x = (two.start - one.start) // one.digits[0].weight
    if not 0 <= x < one.digits[0].extent:
        return [], [one]
    pairs, rest = meet(between(one, x, x + 1), two)
    return pairs, _outside(one, x, x + 1) + rest


def _meet_equal(one: Comb, two: Comb) -> tuple[list[tuple[Comb, Comb]], list[Comb]]:
    """Highest digits of one weight: match the windows that coincide, then what is inside them."""
    top, other = one.digits[0], two.digits[0]
    shift, phase = divmod(two.start - one.start, top.weight)
    reach = two.last - two.start - other.weight * (other.extent - 1)
    if phase + reach >= top.weight:
        raise CutsDoNotNestError(top.weight, other.weight)
    low, high = max(0, shift), min(top.extent, shift + other.extent)
    if low >= high:
        return [], [one]
    inside, theirs = _lower(one, low), _lower(two, low - shift)
    pairs, rest = meet(inside, theirs)
    matched = [(_higher(a, top, high - low), _higher(b, other, high - low)) for a, b in pairs]
    return matched, _outside(one, low, high) + [_higher(comb, top, high - low) for comb in rest]


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


def _window(part: Comb, comb: Comb) -> Comb | None:
    """The window of ``comb`` in which ``part`` lies, if there is one."""
    x = (part.start - comb.start) // comb.digits[0].weight
    return _lower(comb, x) if 0 <= x < comb.digits[0].extent else None


def _at_windows(comb: Comb, frame: Comb) -> list[Comb]:
    """``comb`` cut where the windows of ``frame`` begin: parts within one window, and one that steps by windows."""
    weight = frame.digits[0].weight
    if (comb.start - frame.start) // weight == (comb.last - frame.start) // weight:
        return [comb]
    top = comb.digits[0]
    per_window, odd = divmod(weight, top.weight)
    phase = (comb.start - frame.start) % weight
    reach = comb.last - comb.start - top.weight * (top.extent - 1)
    if odd or phase % top.weight + reach >= top.weight:
        raise CutsDoNotNestError(weight, top.weight)
    first = 0 if phase < top.weight else -((phase - weight) // top.weight)  # x at which the first window begins
    windows = (top.extent - first) // per_window
    end = first + windows * per_window
    parts = [between(comb, 0, first)] if first else []
    if windows:
        middle = between(comb, first, first + per_window)
        across = Digit(weight, windows, tuple(per_window * step for step in top.payload))
        parts.append(_higher(middle, across, windows))
    return parts + ([between(comb, end, top.extent)] if end < top.extent else [])

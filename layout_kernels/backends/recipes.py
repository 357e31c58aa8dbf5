# SPDX-License-Identifier: Apache-2.0
"""What a shape is to a device: rows of runs, which every shape is, or a transpose where it is a good one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..table import Shape
from .elements import Kind

Digit = tuple[int, int, int]  # extent, bytes between neighbours in the source and in the target
WIDEST = 16  # bytes that any device moves in one access
SHORTEST = 16  # elements: a transpose with a shorter side would leave most of its tile empty


@dataclass(frozen=True)
class Rows:
    """Runs in any order: digits innermost first, the first one contiguous on both sides, of elements of these bytes."""

    ours: int
    theirs: int
    digits: tuple[Digit, ...]

    @property
    def width(self) -> int:
        """How many neighbouring elements may move as one: a power of two that divides the run and every step."""
        whole = [self.digits[0][0], WIDEST // min(self.ours, self.theirs)]
        for _, source, target in self.digits[1:]:
            whole += [source // self.ours, target // self.theirs]
        return power_of_two(whole)


@dataclass(frozen=True)
class Transpose:
    """``across`` runs fastest in the source, ``down`` in the target; digits innermost first; bytes of an element."""

    ours: int
    theirs: int
    across: tuple[Digit, ...]
    down: tuple[Digit, ...]
    outer: tuple[Digit, ...]

    @property
    def lengths(self) -> tuple[int, int]:
        """Elements across and down."""
        return length(self.across), length(self.down)

    @property
    def width(self) -> int:
        """How many neighbouring elements may move as one, on both sides alike."""
        whole = [*self.lengths, WIDEST // min(self.ours, self.theirs)]
        whole += [target // self.theirs for _, _, target in self.across + self.outer]
        whole += [source // self.ours for _, source, _ in self.down + self.outer]
        return power_of_two(whole)


Recipe = Rows | Transpose


def power_of_two(numbers: Sequence[int]) -> int:
    """The largest that divides all numbers; 0 divides by anything."""
    bits = 0
    for number in numbers:
        bits |= number
    return bits & -bits


def length(digits: Sequence[Digit]) -> int:
    """How many positions the digits have together."""
    return math.prod(extent for extent, _, _ in digits)


@lru_cache(maxsize=4096)
def recipes(shape: Shape, kind: Kind, zero: bool) -> tuple[Rows, Transpose | None] | None:
    """A shape as rows, which every shape is, and as a transpose where it is a good one; None where it is empty."""
    digits = _digits(shape, kind, zero)
    if length(digits) == 0:
        return None
    ours, theirs = (kind[0], kind[1]) if kind[2] else (1, 1)
    rows = digits if digits and digits[0][1:] == (ours, theirs) else ((1, ours, theirs), *digits)
    return Rows(ours, theirs, rows), _transpose(digits, ours, theirs)


def _digits(shape: Shape, kind: Kind, zero: bool) -> tuple[Digit, ...]:
    """In bytes, innermost in the target first, neighbours that step alike merged; a moved element is a run of bytes."""
    ours, theirs, cast = kind
    digits = [(extent, target * theirs if zero else source * ours, target * theirs) for extent, source, target in shape]
    if not cast:
        digits.append((theirs, 1, 1))
    merged: list[Digit] = []
    for extent, source, target in sorted(digits, key=lambda digit: digit[2]):
        if extent == 1:
            continue
        if merged and (source, target) == tuple(merged[-1][0] * step for step in merged[-1][1:]):
            merged[-1] = (merged[-1][0] * extent, *merged[-1][1:])
        else:
            merged.append((extent, source, target))
    return tuple(merged)


def _transpose(digits: tuple[Digit, ...], ours: int, theirs: int) -> Transpose | None:
    """Where one digit runs fastest in the source and another in the target, in elements that fit a register."""
    if digits and digits[0][1:] == (ours, theirs):
        unit, digits = digits[0][0], digits[1:]
        ours, theirs = unit * ours, unit * theirs
    if ours != theirs and min(ours, theirs) not in (2, 4):
        return None
    if ours == theirs and ours not in (1, 2, 4, 8):
        return None
    if any(source % ours or target % theirs for _, source, target in digits):
        return None
    left = list(digits)
    across, down = _take(left, 1, ours), _take(left, 2, theirs)
    if across is None or down is None:
        return None
    sides = _chain(across, left, 1), _chain(down, left, 2)
    if min(map(length, sides)) < SHORTEST:
        return None
    return Transpose(ours, theirs, *sides, tuple(left))


def _take(left: list[Digit], side: int, step: int) -> Digit | None:
    """The digit of this step on a side (1: the source, 2: the target), which is then no longer left."""
    found = next((digit for digit in left if digit[side] == step), None)
    if found is not None:
        left.remove(found)
    return found


def _chain(first: Digit, left: list[Digit], side: int) -> tuple[Digit, ...]:
    """A digit and those that continue it on one side, so that all of them are contiguous there."""
    taken = [first]
    while (following := _take(left, side, taken[-1][0] * taken[-1][side])) is not None:
        taken.append(following)
    return tuple(taken)

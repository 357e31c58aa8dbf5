# SPDX-License-Identifier: Apache-2.0
"""Blocks, and how they coalesce: a block is a box of elements with a stride on both sides for every digit.

A digit moves by a vector of four: source tensor, source offset, target tensor, target offset. Three rules make few
large blocks out of many small ones; none changes which element goes where.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .combs import Vector, add

ZERO_FILL = -1  # the source tensor of a block that only writes zeros


@dataclass(frozen=True, order=True)
class Block:
    """Elements ``base + sum(move * x)`` for ``0 <= x < extent`` of every (extent, move) in ``digits``."""

    base: Vector
    digits: tuple[tuple[int, Vector], ...]

    @property
    def elements(self) -> int:
        """How many elements it writes."""
        return math.prod(extent for extent, _ in self.digits)


def coalesce(blocks: Sequence[Block]) -> list[Block]:
    """The fewest blocks that these rules make, in canonical order: sorted by target."""
    current = {simplify(block) for block in blocks}
    while True:
        merged = {simplify(block) for block in _steps(_joins(current))}
        if len(merged) == len(current):
            return sorted(merged, key=lambda block: (block.base[2:], block.base))
        current = merged


def simplify(block: Block) -> Block:
    """Digits of extent one vanish; digits that are adjacent on both sides merge; the rest are sorted by target."""
    digits = [(extent, move) for extent, move in block.digits if extent > 1]
    merged = True
    while merged:
        merged = False
        for outer in digits:
            inner = next(
                (d for d in digits if d is not outer and outer[1] == tuple(d[0] * step for step in d[1])), None
            )
            if inner is not None:
                digits = [d for d in digits if d is not outer and d is not inner] + [(outer[0] * inner[0], inner[1])]
                merged = True
                break
    return Block(block.base, tuple(sorted(digits, key=lambda d: (d[1][2:], d[1][:2]), reverse=True)))


def _joins(blocks: set[Block]) -> set[Block]:
    """Two blocks side by side along one digit, on both sides, are one: runs of unequal length end to end."""
    current = set(blocks)
    for place in range(max((len(block.digits) for block in blocks), default=0)):
        beside: dict[object, list[Block]] = {}
        for block in current:
            if place < len(block.digits):
                others = block.digits[:place] + block.digits[place + 1 :]
                beside.setdefault((place, others, block.digits[place][1]), []).append(block)
        current = {block for block in current if place >= len(block.digits)}
        for members in beside.values():
            current.update(_joined(sorted(members, key=lambda block: (block.base[2:], block.base)), place))
    return current


def _joined(members: Sequence[Block], place: int) -> list[Block]:
    found: list[Block] = []
    for block in members:
        extent, move = block.digits[place]
        if found:
            before, _ = found[-1].digits[place]
            if block.base == add(found[-1].base, move, before):
                digits = list(block.digits)
                digits[place] = (before + extent, move)
                found[-1] = Block(found[-1].base, tuple(digits))
                continue
        found.append(block)
    return found


def _steps(blocks: set[Block]) -> set[Block]:
    """Equal blocks whose offsets step evenly on both sides are one with a digit more, whatever their tags."""
    alike: dict[object, list[Block]] = {}
    for block in blocks:
        alike.setdefault((block.digits, block.base[0], block.base[2]), []).append(block)
    return {
        block for members in alike.values() for block in _stepped(sorted(members, key=lambda b: (b.base[2:], b.base)))
    }


def _stepped(members: Sequence[Block]) -> list[Block]:
    found: list[Block] = []
    place = 0
    while place < len(members):
        end = place + 1
        move = add(members[end].base, members[place].base, -1) if end < len(members) else ()
        if move and min(move) >= 0:  # executors only step forward
            while end < len(members) and members[end].base == add(members[end - 1].base, move):
                end += 1
            found.append(Block(members[place].base, ((end - place, move), *members[place].digits)))
        else:
            found.append(members[place])
        place = end
    return found

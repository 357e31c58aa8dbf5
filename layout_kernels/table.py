# SPDX-License-Identifier: Apache-2.0
"""The block table: the one interface between the compiler and every backend.

A backend sees tensors by number, offsets and strides in elements, and nothing of axes, models or engines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from .blocks import Block

Integers = npt.NDArray[np.int64]
Shape = tuple[tuple[int, int, int], ...]  # (extent, source stride, target stride) of every digit, outermost first


@dataclass(frozen=True, eq=False)
class Table:
    """Blocks as arrays: block ``k`` copies a box of ``shapes[shape[k]]`` from ``source[k]`` to ``target[k]``.

    ``shape`` is an index into ``shapes``; ``source`` and ``target`` number tensors (a source of -1 writes zeros);
    the offsets are in elements. Blocks are sorted by target.
    """

    shapes: tuple[Shape, ...]
    shape: Integers
    source: Integers
    target: Integers
    source_offset: Integers
    target_offset: Integers

    def __len__(self) -> int:
        return len(self.shape)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table) or self.shapes != other.shapes:
            return False
        return all(np.array_equal(mine, theirs) for mine, theirs in zip(self.columns(), other.columns(), strict=True))

    def columns(self) -> tuple[Integers, ...]:
        """The arrays, in the order of the fields."""
        return tuple(getattr(self, field.name) for field in fields(self)[1:])

    def where(self, keep: npt.NDArray[np.bool_]) -> Table:
        """The table with only some of its blocks."""
        return Table(self.shapes, *(column[keep] for column in self.columns()))

    @property
    def elements(self) -> Integers:
        """How many elements each block writes."""
        sizes = np.array([math.prod(extent for extent, _, _ in shape) for shape in self.shapes], dtype=np.int64)
        return sizes[self.shape] if len(self.shapes) else np.zeros(0, dtype=np.int64)


def tabulate(blocks: Sequence[Block]) -> Table:
    """Blocks of groups of tensors, written out for every tensor, without a loop over tensors."""
    numbers: dict[Shape, int] = {}
    parts: list[list[Integers]] = [[np.zeros(0, dtype=np.int64)] for _ in range(5)]
    for block in blocks:
        across = [digit for digit in block.digits if digit[1][0] or digit[1][2]]
        within = tuple((extent, move[1], move[3]) for extent, move in block.digits if not (move[0] or move[2]))
        places = _places(block.base, across)
        count = places.shape[1]
        parts[0].append(np.full(count, numbers.setdefault(within, len(numbers)), dtype=np.int64))
        for part, column in zip(parts[1:], (places[0], places[2], places[1], places[3]), strict=True):
            part.append(column)
    table = Table(tuple(numbers), *(np.concatenate(part) for part in parts))
    order = np.lexsort((table.target_offset, table.target))
    return table.where(order)  # type: ignore[arg-type]  # an order of all blocks selects like a mask


def _places(base: Sequence[int], digits: Sequence[tuple[int, tuple[int, ...]]]) -> Integers:
    """Every (source, source offset, target, target offset) that the digits reach: four rows."""
    places = np.array(base, dtype=np.int64).reshape(4, 1)
    for extent, move in digits:
        steps = np.arange(extent, dtype=np.int64) * np.array(move, dtype=np.int64).reshape(4, 1)
        places = (places[:, :, None] + steps[:, None, :]).reshape(4, -1)
    return places

# SPDX-License-Identifier: Apache-2.0
"""The block table in the form that devices walk: which kernel takes which blocks, cut into tiles of one size.

It is the same for every device; what a tile is, each backend says itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import LayoutError
from ..table import Integers, Table
from .elements import Kind
from .recipes import Recipe, Rows, Transpose, recipes

Choice = tuple[Integers, list[int], int]  # blocks, their shape as a kernel reads it, tiles of each


class Variant(Protocol):
    """One compiled kernel; two that are equal are one launch."""

    def __hash__(self) -> int: ...

    def shape(self, recipe: Recipe) -> tuple[list[int], int]:
        """The recipe as its kernel reads it, and its number of tiles."""


AnyVariant = TypeVar("AnyVariant", bound=Variant)


@dataclass(frozen=True)
class DeviceTable:
    """What a device walks: ``tiles[n]`` is the block of tile n; a block is four of ``words``, and shapes follow.

    A block is its source address (0: write zeros), target address, where its shape stands, and its first tile.
    """

    tiles: npt.NDArray[np.int32]
    words: Integers

    @property
    def nbytes(self) -> int:
        """What is uploaded."""
        return self.tiles.nbytes + self.words.nbytes


def pack(
    source: Integers, target: Integers, shape: Integers, shapes: Sequence[Sequence[int]], counts: Sequence[int]
) -> DeviceTable:
    """The table of blocks with these addresses; ``counts`` are the tiles of each shape."""
    starts = 4 * len(shape) + np.cumsum([0, *map(len, shapes)])
    count = np.array(counts, dtype=np.int64)[shape]
    first = np.cumsum(count) - count
    words = np.stack([source, target, starts[shape], first], axis=1).reshape(-1)
    flat = np.array([number for one in shapes for number in one], dtype=np.int64)
    tiles = np.repeat(np.arange(len(shape), dtype=np.int32), count)
    return DeviceTable(tiles, np.concatenate([words, flat]))


def device_tables(
    table: Table,
    known: Sequence[Kind],
    kind: Integers,
    source: Integers,
    target: Integers,
    choose: Callable[[Recipe, int, int, bool], AnyVariant],
) -> dict[AnyVariant, DeviceTable]:
    """For each variant of kernel that is needed, the blocks that it takes.

    Parameters
    ----------
    table : Table
        The blocks.
    known, kind : sequence of Kind, and array
        The kinds of elements, and each block's.
    source, target : arrays
        Where each block starts, in bytes: addresses, or offsets from a base; 0 for the source of a zero fill.
    choose : callable
        The variant for a recipe, how many elements may move as one, a cast, and whether it writes zeros.
    """
    if not len(table):
        return {}
    asked = (table.shape * len(known) + kind) * 2 + (table.source < 0)
    used, count = np.unique(asked, return_counts=True)
    alike = np.split(np.argsort(asked, kind="stable"), np.cumsum(count)[:-1])
    choices: dict[AnyVariant, list[Choice]] = {}
    for code, blocks in zip(used.tolist(), alike, strict=True):
        shape, of = table.shapes[code // 2 // len(known)], known[code // 2 % len(known)]
        for recipe, width, some in _by_recipe(recipes(shape, of, bool(code % 2)), blocks, source, target):
            variant = choose(recipe, width, of[2], bool(code % 2))
            choices.setdefault(variant, []).append((some, *variant.shape(recipe)))
    return {variant: _packed(parts, source, target) for variant, parts in choices.items()}


def _by_recipe(
    known: tuple[Rows, Transpose | None] | None, blocks: Integers, source: Integers, target: Integers
) -> Iterator[tuple[Recipe, int, Integers]]:
    """A transpose where addresses allow it, else rows, which move less than an element at a time if they must."""
    if known is None:
        return
    rows, transpose = known
    if transpose is not None:
        fits = (source[blocks] % transpose.ours == 0) & (target[blocks] % transpose.theirs == 0)
        yield from _by_width(transpose, blocks[fits], source, target)
        blocks = blocks[~fits]
    yield from _by_width(rows, blocks, source, target)


def _by_width(
    recipe: Recipe, blocks: Integers, source: Integers, target: Integers
) -> Iterator[tuple[Recipe, int, Integers]]:
    """The widest access that the steps of a shape and the addresses of its blocks allow."""
    odd = (source[blocks] % recipe.ours != 0) | (target[blocks] % recipe.theirs != 0)
    if odd.any():
        where = int(target[blocks[odd]][0])
        raise LayoutError(
            f"a cast of {recipe.ours} bytes to {recipe.theirs} at address {where:#x}: its elements are not aligned"
        )
    start = source[blocks] // recipe.ours | target[blocks] // recipe.theirs | recipe.width
    width = start & -start
    for one in np.unique(width).tolist():
        yield recipe, one, blocks[width == one]


def _packed(choices: Sequence[Choice], source: Integers, target: Integers) -> DeviceTable:
    """Blocks in the order of the targets, whatever their shapes."""
    blocks = np.concatenate([some for some, _, _ in choices])
    shape = np.repeat(np.arange(len(choices)), [len(some) for some, _, _ in choices])
    order = np.argsort(blocks)
    blocks, shape = blocks[order], shape[order]
    return pack(source[blocks], target[blocks], shape, [one for _, one, _ in choices], [n for _, _, n in choices])

# SPDX-License-Identifier: Apache-2.0
"""Which kernel takes which block on a GPU, and how large its tiles are."""

from __future__ import annotations

from dataclasses import dataclass

from .recipes import WIDEST, Recipe, Rows, Transpose, length

LARGEST_INDEX = 2**31 - 2**20  # positions of a block counted in 32 bits, with room for the last tile

# The launch heuristic: nothing here knows a model, only sizes of elements and accesses.
TILE = 16 * 1024  # bytes of a tile: enough in flight on a multiprocessor with a few programs; the table takes 4 of them
WARPS = 8  # 256 threads: of a tile, each has four 16-byte accesses in flight
LANES = 1024  # positions in a step of rows: four for each thread; narrower accesses take more steps for one tile
ACCESSES = 8  # of one thread in a step of a transpose: with more, the addresses of narrow accesses would spill
ROWS = 4  # programs on a multiprocessor: while one waits for its table, others have data in flight
TRANSPOSES = 3  # they hold addresses of both sides, in more registers
NARROW_TRANSPOSES = 2  # the narrower an access, the more addresses
REGISTERS = 65536  # of a multiprocessor, sm_80 to sm_100


@dataclass(frozen=True)
class Variant:
    """One compiled kernel: bytes of what an access is made of on both sides, how many an access takes, the cast."""

    transposed: bool
    ours: int
    theirs: int
    width: int
    cast: int
    wide: bool  # positions counted in 64 bits

    @property
    def programs(self) -> int:
        """How many programs share a multiprocessor."""
        if not self.transposed:
            return ROWS
        return TRANSPOSES if self.width * min(self.ours, self.theirs) == WIDEST else NARROW_TRANSPOSES

    @property
    def registers(self) -> int:
        """What the compiler may give a thread, so that it neither crowds out programs nor spills to be small."""
        return REGISTERS // (self.programs * WARPS * 32) // 8 * 8

    @property
    def steps(self) -> int:
        """How many steps of the kernel make a tile."""
        across, down = self.step
        return max(1, TILE // (across * down * max(self.ours, self.theirs)))

    @property
    def step(self) -> tuple[int, int]:
        """Elements of one step: positions and width of rows, or across and down of a transpose."""
        if not self.transposed:
            return min(LANES, TILE // (self.width * max(self.ours, self.theirs))), self.width
        area = min(TILE // max(self.ours, self.theirs), ACCESSES * WARPS * 32 * self.width)
        across = 1 << ((area.bit_length() - 1) // 2)
        return across, area // across

    def shape(self, recipe: Recipe) -> tuple[list[int], int]:
        """The recipe as its kernel reads it, and its number of tiles."""
        return self._transpose(recipe) if isinstance(recipe, Transpose) else self._rows(recipe)

    def _rows(self, recipe: Rows) -> tuple[list[int], int]:
        taken = self.width * self.ours // recipe.ours
        first = (recipe.digits[0][0] // taken, taken * recipe.ours, taken * recipe.theirs)
        digits = (first, *recipe.digits[1:])
        positions = length(digits)
        steps = [(extent, source // self.ours, target // self.theirs) for extent, source, target in digits]
        tiles = -(-positions // (self.step[0] * self.steps))
        return [len(digits), positions, *(number for digit in steps for number in digit)], tiles

    def _transpose(self, recipe: Transpose) -> tuple[list[int], int]:
        count = length(recipe.outer)
        for whole, part in zip(recipe.lengths, self.step, strict=True):
            count *= -(-whole // part)
        outer = recipe.outer or ((1, 0, 0),)  # a kernel looks for one digit at least
        numbers = [len(recipe.across), len(recipe.down), len(outer), *recipe.lengths, count]
        for extent, source, target in (*recipe.across, *recipe.down, *outer):
            numbers += [extent, source // self.ours, target // self.theirs]
        return numbers, -(-count // self.steps)


def variant_of(recipe: Recipe, width: int, cast: int, zero: bool) -> Variant:
    """The kernel for a recipe whose addresses allow accesses of so many elements."""
    if isinstance(recipe, Transpose):
        return Variant(True, recipe.ours, recipe.theirs, width, cast, max(recipe.lengths) > LARGEST_INDEX)
    wide = length(recipe.digits) // width > LARGEST_INDEX
    if cast:
        return Variant(False, recipe.ours, recipe.theirs, width, cast, wide)
    size = min(width, 8)  # bytes that Triton has a type for
    return Variant(False, size, size, width // size, cast, wide)

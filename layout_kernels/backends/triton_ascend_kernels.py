# SPDX-License-Identifier: Apache-2.0
"""The kernels for NPUs: the same table; a tile moves by DMA into the unified buffer and out again.

What a DMA takes is rows of one length, one step apart: a row of a tile is contiguous on both sides, or turns in the
vector unit. Tensors are reached from one base on each side: with addresses out of the table, the next load would wait
for the last store.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: N803  (compile-time arguments are upper case)

from __future__ import annotations

import triton
import triton.language as tl

from .triton_casts import converted


@triton.jit
def _outer(digits, number, count):
    """Offsets on both sides at a number, by digits of (extent, source step, target step), innermost first."""
    ours = number * 0
    theirs = number * 0
    for _ in range(count):
        extent = tl.load(digits)
        ours += number % extent * tl.load(digits + 1)
        theirs += number % extent * tl.load(digits + 2)
        number = number // extent
        digits += 3
    return ours, theirs


@triton.jit
def rows(
    source,
    target,
    tiles,
    words,
    count,
    CAST: tl.constexpr,
    ZERO: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Rows of runs. A shape: digits around, length of a row, rows, their steps on either side, then the digits."""
    for tile in range(tl.program_id(0), count, tl.num_programs(0)):
        block = words + 4 * tl.load(tiles + tile)
        shape = words + tl.load(block + 2)
        columns, height = tl.load(shape + 1), tl.load(shape + 2)
        number = tile - tl.load(block + 3)
        across = tl.cdiv(columns, COLUMNS)
        down = tl.cdiv(height, ROWS)
        column = number % across * COLUMNS
        row = number // across % down * ROWS
        ours, theirs = _outer(shape + 5, number // across // down, tl.load(shape))
        ours += tl.load(block) + row * tl.load(shape + 3) + column
        theirs += tl.load(block + 1) + row * tl.load(shape + 4) + column
        y, x = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
        inside = (y < height - row) & (x < columns - column)
        if ZERO:
            values = tl.zeros([ROWS, COLUMNS], target.dtype.element_ty)
        else:
            values = converted(tl.load(source + ours + (y * tl.load(shape + 3) + x), mask=inside), CAST)
        tl.store(target + theirs + (y * tl.load(shape + 4) + x), values, mask=inside)


@triton.jit
def transposes(
    source,
    target,
    tiles,
    words,
    count,
    CAST: tl.constexpr,
    ACROSS: tl.constexpr,
    DOWN: tl.constexpr,
):
    """Tiles that turn. A shape: digits around, lengths across and down, step of down in the source, of across in the
    target, then the digits."""
    for tile in range(tl.program_id(0), count, tl.num_programs(0)):
        block = words + 4 * tl.load(tiles + tile)
        shape = words + tl.load(block + 2)
        width, height = tl.load(shape + 1), tl.load(shape + 2)
        number = tile - tl.load(block + 3)
        tiles_across = tl.cdiv(width, ACROSS)
        tiles_down = tl.cdiv(height, DOWN)
        across = number % tiles_across * ACROSS
        down = number // tiles_across % tiles_down * DOWN
        ours, theirs = _outer(shape + 5, number // tiles_across // tiles_down, tl.load(shape))
        ours += tl.load(block) + down * tl.load(shape + 3) + across
        theirs += tl.load(block + 1) + across * tl.load(shape + 4) + down
        a, d = tl.arange(0, ACROSS), tl.arange(0, DOWN)
        read = (d[:, None] < height - down) & (a[None, :] < width - across)
        written = (a[:, None] < width - across) & (d[None, :] < height - down)
        values = tl.load(source + ours + (d[:, None] * tl.load(shape + 3) + a[None, :]), mask=read)
        values = converted(tl.trans(values), CAST)
        tl.store(target + theirs + (a[:, None] * tl.load(shape + 4) + d[None, :]), values, mask=written)

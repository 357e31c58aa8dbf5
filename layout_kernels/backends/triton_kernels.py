# SPDX-License-Identifier: Apache-2.0
"""The kernels for GPUs: persistent programs that walk the block table on the device.

``tiles[n]`` is the block of tile n. A block is four numbers in ``words``: source address (0: write zeros), target
address, where its shape stands in ``words``, and its first tile. Steps are in what one access element holds, and
``WIDTH`` neighbours move as one access.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: N803  (compile-time arguments are upper case)

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from .triton_casts import converted
from .triton_variants import Variant

TYPES = {1: tl.int8, 2: tl.int16, 4: tl.int32, 8: tl.int64}


def constants(variant: Variant) -> dict[str, Any]:
    """The compile-time arguments of a variant's kernel."""
    sides = ("ACROSS", "DOWN") if variant.transposed else ("LANES", "WIDTH")
    known = {
        "OURS": TYPES[variant.ours],
        "THEIRS": TYPES[variant.theirs],
        "CAST": variant.cast,
        "WIDTH": variant.width,
        "INDEX": tl.int64 if variant.wide else tl.uint32,
        "STEPS": variant.steps,
    }
    return known | dict(zip(sides, variant.step, strict=True))


@triton.jit
def _places(positions, digits, count, INDEX: tl.constexpr):
    """Where positions lie on both sides, by digits of (extent, source step, target step), innermost first."""
    ours = (positions * 0).to(tl.int64)
    theirs = ours
    for _ in range(count - 1):
        extent = tl.load(digits).to(INDEX)
        place = (positions % extent).to(tl.int64)
        ours += place * tl.load(digits + 1)
        theirs += place * tl.load(digits + 2)
        positions = positions // extent
        digits += 3
    positions = positions.to(tl.int64)  # what is left is the place of the outermost digit
    return ours + positions * tl.load(digits + 1), theirs + positions * tl.load(digits + 2)


@triton.jit(do_not_specialize=["count"])
def rows(
    tiles,
    words,
    count,
    OURS: tl.constexpr,
    THEIRS: tl.constexpr,
    CAST: tl.constexpr,
    INDEX: tl.constexpr,
    STEPS: tl.constexpr,
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Lanes take the positions of a shape in the order of the target, one access each.

    A shape: how many digits, how many positions, then the digits.
    """
    neighbours = tl.arange(0, WIDTH)[None, :]
    for tile in range(tl.program_id(0), count, tl.num_programs(0)):
        block = words + 4 * tl.load(tiles + tile)
        source, target = tl.load(block), tl.load(block + 1)
        shape = words + tl.load(block + 2)
        digits, positions = tl.load(shape).to(tl.int32), tl.load(shape + 1).to(INDEX)
        start = ((tile - tl.load(block + 3)) * STEPS).to(INDEX) * LANES
        steps = STEPS
        if STEPS > 1:
            steps = tl.minimum(STEPS, tl.cdiv(positions - start, LANES)).to(tl.int32)
        for step in range(steps):
            position = start + step * LANES + tl.arange(0, LANES).to(INDEX)
            ours, theirs = _places(position, shape + 2, digits, INDEX)
            ours = source.to(tl.pointer_type(OURS)) + (ours[:, None] + neighbours)
            theirs = target.to(tl.pointer_type(THEIRS)) + (theirs[:, None] + neighbours)
            ours = tl.multiple_of(ours, (1, WIDTH * OURS.primitive_bitwidth // 8))
            theirs = tl.multiple_of(theirs, (1, WIDTH * THEIRS.primitive_bitwidth // 8))
            inside = (position < positions)[:, None]
            values = tl.load(tl.max_contiguous(ours, (1, WIDTH)), mask=inside & (source != 0), other=0)
            tl.store(tl.max_contiguous(theirs, (1, WIDTH)), converted(values, CAST), mask=inside)


@triton.jit(do_not_specialize=["count"])
def transposes(
    tiles,
    words,
    count,
    OURS: tl.constexpr,
    THEIRS: tl.constexpr,
    CAST: tl.constexpr,
    INDEX: tl.constexpr,
    STEPS: tl.constexpr,
    WIDTH: tl.constexpr,
    ACROSS: tl.constexpr,
    DOWN: tl.constexpr,
):
    """Tiles that are contiguous across in the source and down in the target; they turn in shared memory.

    A shape: how many digits each of across, down and outer has, the lengths of across and down, how many steps there
    are, then the digits of across, down and outer.
    """
    for tile in range(tl.program_id(0), count, tl.num_programs(0)):
        block = words + 4 * tl.load(tiles + tile)
        source, target = tl.load(block).to(tl.pointer_type(OURS)), tl.load(block + 1).to(tl.pointer_type(THEIRS))
        shape = words + tl.load(block + 2)
        digits_across, digits_down = tl.load(shape).to(tl.int32), tl.load(shape + 1).to(tl.int32)
        width = tl.multiple_of(tl.load(shape + 3).to(INDEX), WIDTH)
        height = tl.multiple_of(tl.load(shape + 4).to(INDEX), WIDTH)
        first = (tile - tl.load(block + 3)) * STEPS
        steps = STEPS
        if STEPS > 1:
            steps = tl.minimum(STEPS, tl.load(shape + 5) - first).to(tl.int32)
        for step in range(steps):
            number = (first + step).to(INDEX)
            across = number % tl.cdiv(width, ACROSS) * ACROSS + tl.arange(0, ACROSS).to(INDEX)
            number = number // tl.cdiv(width, ACROSS)
            down = number % tl.cdiv(height, DOWN) * DOWN + tl.arange(0, DOWN).to(INDEX)
            number = number // tl.cdiv(height, DOWN)
            digits = shape + 6
            _, far_across = _places(across, digits, digits_across, INDEX)
            digits += 3 * digits_across
            far_down, _ = _places(down, digits, digits_down, INDEX)
            digits += 3 * digits_down
            ours, theirs = _places(number, digits, tl.load(shape + 2).to(tl.int32), INDEX)
            ours = source + ours + (far_down[:, None] + across[None, :])
            theirs = target + theirs + (far_across[None, :] + down[:, None])
            # Contiguous throughout, but aligned only as far as the variant says.
            ours = tl.multiple_of(ours, (1, WIDTH * OURS.primitive_bitwidth // 8))
            theirs = tl.multiple_of(theirs, (WIDTH * THEIRS.primitive_bitwidth // 8, 1))
            inside = (down < height)[:, None] & (across < width)[None, :]
            values = tl.load(tl.max_contiguous(ours, (1, ACROSS)), mask=inside)
            tl.store(tl.max_contiguous(theirs, (DOWN, 1)), converted(values, CAST), mask=inside)

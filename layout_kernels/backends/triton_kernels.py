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
        "ALIGN_OURS": variant.width * variant.ours,
        "ALIGN_THEIRS": variant.width * variant.theirs,
        "INDEX": tl.int64 if variant.wide else tl.uint32,
        "STEPS": variant.steps,
    }
    return known | dict(zip(sides, variant.step, strict=True))


@triton.jit(do_not_specialize=["count"])
def rows(
    tiles,
    words,
    count,
    OURS: tl.constexpr,
    THEIRS: tl.constexpr,
    CAST: tl.constexpr,
    WIDTH: tl.constexpr,
    ALIGN_OURS: tl.constexpr,
    ALIGN_THEIRS: tl.constexpr,
    INDEX: tl.constexpr,
    LANES: tl.constexpr,
    STEPS: tl.constexpr,
):
    """Lanes take the positions of a shape in the order of the target, one access each.

    A shape: how many digits, how many positions, then (extent, source step, target step) of each, innermost first.
    """
    for tile in range(tl.program_id(0), count, tl.num_programs(0)):
        block = words + 4 * tl.load(tiles + tile)
        from_address, to_address = tl.load(block), tl.load(block + 1)
        shape = words + tl.load(block + 2)
        start = ((tile - tl.load(block + 3)) * STEPS).to(INDEX) * LANES
        digits = tl.load(shape).to(tl.int32) - 1
        positions = tl.load(shape + 1).to(INDEX)
        source = from_address.to(tl.pointer_type(OURS))
        target = to_address.to(tl.pointer_type(THEIRS))
        neighbours = tl.arange(0, WIDTH)[None, :]
        steps = STEPS
        if STEPS > 1:
            steps = tl.minimum(STEPS, tl.cdiv(positions - start, LANES)).to(tl.int32)
        for step in range(steps):
            position = start + step * LANES + tl.arange(0, LANES).to(INDEX)
            left = position
            digit = shape + 2
            ours = tl.zeros([LANES], tl.int64)
            theirs = tl.zeros([LANES], tl.int64)
            for _ in range(digits):
                extent = tl.load(digit).to(INDEX)
                place = (left % extent).to(tl.int64)
                left = left // extent
                ours += place * tl.load(digit + 1)
                theirs += place * tl.load(digit + 2)
                digit += 3
            ours += left.to(tl.int64) * tl.load(digit + 1)  # what is left is the place of the outermost digit
            theirs += left.to(tl.int64) * tl.load(digit + 2)
            inside = (position < positions)[:, None]
            ours = source + (ours[:, None] + neighbours)
            theirs = target + (theirs[:, None] + neighbours)
            ours = tl.max_contiguous(tl.multiple_of(ours, (1, ALIGN_OURS)), (1, WIDTH))
            theirs = tl.max_contiguous(tl.multiple_of(theirs, (1, ALIGN_THEIRS)), (1, WIDTH))
            values = tl.load(ours, mask=inside & (from_address != 0), other=0)
            tl.store(theirs, converted(values, CAST), mask=inside)


@triton.jit(do_not_specialize=["count"])
def transposes(
    tiles,
    words,
    count,
    OURS: tl.constexpr,
    THEIRS: tl.constexpr,
    CAST: tl.constexpr,
    WIDTH: tl.constexpr,
    ALIGN_OURS: tl.constexpr,
    ALIGN_THEIRS: tl.constexpr,
    INDEX: tl.constexpr,
    STEPS: tl.constexpr,
    ACROSS: tl.constexpr,
    DOWN: tl.constexpr,
):
    """Tiles that are contiguous across in the source and down in the target; they turn in shared memory.

    A shape: how many digits each of across, down and outer has, the lengths of across and down, how many steps there
    are, then (extent, step) of across in the target, of down in the source, and (extent, source step, target step) of
    outer, innermost first.
    """
    for tile in range(tl.program_id(0), count, tl.num_programs(0)):
        block = words + 4 * tl.load(tiles + tile)
        source = tl.load(block).to(tl.pointer_type(OURS))
        target = tl.load(block + 1).to(tl.pointer_type(THEIRS))
        shape = words + tl.load(block + 2)
        digits_across, digits_down = tl.load(shape).to(tl.int32) - 1, tl.load(shape + 1).to(tl.int32) - 1
        digits_outer = tl.load(shape + 2).to(tl.int32)
        length_across = tl.multiple_of(tl.load(shape + 3).to(INDEX), WIDTH)
        length_down = tl.multiple_of(tl.load(shape + 4).to(INDEX), WIDTH)
        numbers = tl.load(shape + 5)
        tiles_across, tiles_down = tl.cdiv(length_across, ACROSS), tl.cdiv(length_down, DOWN)
        first = (tile - tl.load(block + 3)) * STEPS
        steps = STEPS
        if STEPS > 1:
            steps = tl.minimum(STEPS, numbers - first).to(tl.int32)
        for step in range(steps):
            number = (first + step).to(INDEX)
            across = number % tiles_across * ACROSS + tl.arange(0, ACROSS).to(INDEX)
            number = number // tiles_across
            down = number % tiles_down * DOWN + tl.arange(0, DOWN).to(INDEX)
            number = number // tiles_down
            digit = shape + 6
            left = across
            far_across = tl.zeros([ACROSS], tl.int64)
            for _ in range(digits_across):
                extent = tl.load(digit).to(INDEX)
                far_across += (left % extent).to(tl.int64) * tl.load(digit + 1)
                left = left // extent
                digit += 2
            far_across += left.to(tl.int64) * tl.load(digit + 1)  # what is left is the place of the outermost digit
            digit += 2
            left = down
            far_down = tl.zeros([DOWN], tl.int64)
            for _ in range(digits_down):
                extent = tl.load(digit).to(INDEX)
                far_down += (left % extent).to(tl.int64) * tl.load(digit + 1)
                left = left // extent
                digit += 2
            far_down += left.to(tl.int64) * tl.load(digit + 1)  # what is left is the place of the outermost digit
            digit += 2
            from_outer, to_outer = tl.zeros([], tl.int64), tl.zeros([], tl.int64)
            for _ in range(digits_outer):
                extent = tl.load(digit).to(INDEX)
                place = (number % extent).to(tl.int64)
                from_outer += place * tl.load(digit + 1)
                to_outer += place * tl.load(digit + 2)
                number = number // extent
                digit += 3
            inside = (down < length_down)[:, None] & (across < length_across)[None, :]
            ours = source + from_outer + (far_down[:, None] + across[None, :])
            theirs = target + to_outer + (far_across[None, :] + down[:, None])
            # Contiguous throughout, but aligned only as far as the variant says.
            ours = tl.max_contiguous(tl.multiple_of(ours, (1, ALIGN_OURS)), (1, ACROSS))
            theirs = tl.max_contiguous(tl.multiple_of(theirs, (ALIGN_THEIRS, 1)), (DOWN, 1))
            tl.store(theirs, converted(tl.load(ours, mask=inside), CAST), mask=inside)

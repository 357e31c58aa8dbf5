# SPDX-License-Identifier: Apache-2.0
"""Casts between bfloat16, float16 and float32 on bits: rounded once, to nearest even, on every chip alike.

A NaN keeps its sign and the top of its payload, and becomes quiet; conversions of the hardware do not.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: N803, RET505  (compile-time arguments are upper case, and what is compiled hangs on if and else)

from __future__ import annotations

import triton
import triton.language as tl

# A cast is 1 + 3 * from + to, of these numbers; 0 moves bits unchanged.
BFLOAT16 = tl.constexpr(0)
FLOAT16 = tl.constexpr(1)
FLOAT32 = tl.constexpr(2)


@triton.jit
def _quieted(bits):
    return tl.where((bits & 0x7FFFFFFF) > 0x7F800000, bits | 0x00400000, bits)


@triton.jit
def _float32_of_float16(bits):
    sign = (bits & 0x8000) << 16
    shifted = (bits & 0x7FFF) << 13
    small = ((bits & 0x3FF).to(tl.float32) * 5.9604644775390625e-08).to(tl.int32, bitcast=True)  # 2**-24
    exponent = bits & 0x7C00
    normal = shifted + (112 << 23)  # the biases of the exponents differ by 112
    size = tl.where(exponent == 0x7C00, shifted | 0x7F800000, tl.where(exponent == 0, small, normal))
    return sign | _quieted(size)


@triton.jit
def _float16_of_float32(bits):
    sign = (bits >> 31) << 15  # all bits above too: an int16 must hold it
    size = bits & 0x7FFFFFFF
    normal = (size - (112 << 23) + 0xFFF + ((size >> 13) & 1)) >> 13
    # Adding 0.5 leaves multiples of 2**-24, the step of subnormals, in the low bits, rounded by the addition.
    below = tl.where(size < 0x38800000, size, 0).to(tl.float32, bitcast=True)
    small = (below + 0.5).to(tl.int32, bitcast=True) - 0x3F000000
    special = tl.where(size > 0x7F800000, ((size >> 13) & 0x3FF) | 0x7E00, 0x7C00)
    # From 65520 on the nearest float16 is infinity.
    return sign | tl.where(size < 0x38800000, small, tl.where(size < 0x477FF000, normal, special))


@triton.jit
def _bfloat16_of_float32(bits):
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)  # carries into the exponent, up to infinity
    return tl.where((bits & 0x7FFFFFFF) > 0x7F800000, bits | 0x00400000, rounded) >> 16


@triton.jit
def converted(values, CAST: tl.constexpr):
    """The bits of numbers as the bits of another format: int16 or int32 in, int16 or int32 out."""
    if CAST == 0:
        return values
    else:  # without an else, Triton would also compile what follows for plain moves
        held: tl.constexpr = (CAST - 1) // 3
        wanted: tl.constexpr = (CAST - 1) % 3
        bits = values.to(tl.int32)
        if held == BFLOAT16:
            bits = _quieted(bits << 16)
        elif held == FLOAT16:
            bits = _float32_of_float16(bits)
        if wanted == BFLOAT16:
            return _bfloat16_of_float32(bits).to(tl.int16)
        elif wanted == FLOAT16:
            return _float16_of_float32(bits).to(tl.int16)
        else:
            return bits

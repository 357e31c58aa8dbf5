# SPDX-License-Identifier: Apache-2.0
"""Declared casts: rounded once, to nearest even, NaN kept; against plain integer arithmetic, on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from shadow import BACKENDS, guarded

import layout_kernels as lk
from layout_kernels.testing import assert_same_bytes

FLOATS = [torch.bfloat16, torch.float16, torch.float32]
PAIRS = [(one, two) for one in FLOATS for two in FLOATS if one != two]
BITS = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float32: torch.int32}
MANTISSA = {torch.bfloat16: 7, torch.float16: 10, torch.float32: 23}
LEAST = {torch.bfloat16: -133, torch.float16: -24, torch.float32: -149}  # the power of two of the least subnormal
INFINITE = {torch.bfloat16: 0x7F80, torch.float16: 0x7C00, torch.float32: 0x7F800000}
pairs = pytest.mark.parametrize(("held", "wanted"), PAIRS, ids=lambda dtype: str(dtype).removeprefix("torch."))


def patterns(dtype: torch.dtype) -> torch.Tensor:
    """Every pattern of 16 bits; of 32 bits every high half beside low halves at and around every tie."""
    every = torch.arange(65536, dtype=torch.int64)
    if dtype.itemsize == 2:
        return every.to(torch.int16)
    lows = torch.tensor([0, 1, 0x0FFF, 0x1000, 0x1001, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
    return (every[:, None] * 65536 + lows).reshape(-1).to(torch.int32)


def rounded(values: torch.Tensor, wanted: torch.dtype) -> np.ndarray[Any, Any]:
    """The bits of the nearest value of ``wanted``, computed from the exact number in double precision."""
    held = values.dtype
    bits = values.view(BITS[held]).numpy().astype(np.int64) & ((1 << held.itemsize * 8) - 1)
    sign = bits >> (held.itemsize * 8 - 1)
    exact = np.abs(values.to(torch.float64).numpy())
    with np.errstate(all="ignore"):
        finite = np.where(np.isfinite(exact), exact, 0)
        power = np.maximum(np.frexp(finite)[1] - 1 - MANTISSA[wanted], LEAST[wanted])
        power = np.where(finite == 0, LEAST[wanted], power)
        steps = np.rint(np.ldexp(finite, -power)).astype(np.int64)  # ties go to even
    result = np.minimum(steps + (power - LEAST[wanted] << MANTISSA[wanted]), INFINITE[wanted])
    result = np.where(np.isinf(exact), INFINITE[wanted], result)
    ours, theirs = MANTISSA[held], MANTISSA[wanted]
    payload = (bits & ((1 << ours) - 1)) << 23 - ours >> 23 - theirs
    result = np.where(np.isnan(exact), INFINITE[wanted] | 1 << (theirs - 1) | payload, result)
    return np.asarray(result | sign << (wanted.itemsize * 8 - 1))


def as_tensor(bits: np.ndarray[Any, Any], dtype: torch.dtype) -> torch.Tensor:
    whole = 1 << dtype.itemsize * 8
    return torch.from_numpy(np.where(bits >= whole // 2, bits - whole, bits)).to(BITS[dtype]).view(dtype)


def cast_by(backend: str, layout: str, values: torch.Tensor, wanted: torch.dtype, **where: Any) -> torch.Tensor:
    """Values read as ``a b`` and written under another layout and dtype; returned as ``a b``."""
    rows = len(values) // 64
    dims = {"a": rows, "b": 64}
    plan = lk.compile({"s": lk.Spec("a b", dims=dims)}, {"t": lk.Spec(layout, dims=dims, dtype=wanted)})
    held = guarded(plan.targets["t"].shape(), wanted, **where)
    source = guarded((rows, 64), values.dtype, **where)
    source.tensor.copy_(values.reshape(rows, 64))
    plan.run({"s": source.tensor}, {"t": held.tensor}, backend)
    held.assert_untouched(layout)
    return held.tensor if layout == "a b" else held.tensor.transpose(0, 1)


@pytest.mark.parametrize("backend", BACKENDS)
@pairs
def test_every_pattern_is_rounded_to_nearest_even(held: torch.dtype, wanted: torch.dtype, backend: str) -> None:
    values = patterns(held).view(held)
    expected = as_tensor(rounded(values, wanted), wanted)
    assert_same_bytes(cast_by(backend, "a b", values, wanted).reshape(-1).contiguous(), expected, backend)


@pytest.mark.parametrize("where", [{"shift": 1}, {"holes": True}, {}], ids=["misaligned", "strided", "aligned"])
@pytest.mark.parametrize("layout", ["a b", "b a"])
@pytest.mark.parametrize("backend", BACKENDS)
@pairs
def test_a_cast_is_the_same_in_rows_and_transposed(
    held: torch.dtype, wanted: torch.dtype, backend: str, layout: str, where: Any
) -> None:
    values = patterns(held).view(held)[:: 61 if held.itemsize == 2 else 601]
    values = values[: len(values) // 64 * 64].clone()
    expected = as_tensor(rounded(values, wanted), wanted)
    assert_same_bytes(cast_by(backend, layout, values, wanted, **where).reshape(-1).contiguous(), expected, backend)


def test_the_oracle_agrees_with_numpy() -> None:
    """Where numpy knows both types (half and single), the arithmetic above says the same of every number."""
    singles = patterns(torch.float32).view(torch.float32)
    with np.errstate(all="ignore"):
        halves = singles.numpy().astype(np.float16).view(np.uint16)
    numbers = ~torch.isnan(singles).numpy()
    assert np.array_equal(rounded(singles, torch.float16)[numbers], halves[numbers])


@pairs
def test_known_roundings(held: torch.dtype, wanted: torch.dtype) -> None:
    one = {torch.bfloat16: 0x3F80, torch.float16: 0x3C00, torch.float32: 0x3F800000}
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf")], dtype=held)
    top = 1 << (wanted.itemsize * 8 - 1)
    expected = [0, top, one[wanted], one[wanted] | top, INFINITE[wanted], INFINITE[wanted] | top]
    assert rounded(special, wanted).tolist() == expected
    if MANTISSA[wanted] < 23 and held == torch.float32:
        half = 2.0 ** -(MANTISSA[wanted] + 1)
        ties = torch.tensor([1 + half, 1 + 3 * half, 1 + half * (1 + 2**-8), 3e38], dtype=held)
        last = 0x7F62 if wanted == torch.bfloat16 else 0x7C00
        assert rounded(ties, wanted).tolist() == [one[wanted], one[wanted] + 2, one[wanted] + 1, last]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_without_a_cast_no_bit_changes(dtype: torch.dtype, backend: str) -> None:
    """NaN payloads, signalling ones too, subnormals and signed zeros."""
    values = patterns(dtype).view(dtype)
    for layout in ("a b", "b a"):
        assert_same_bytes(cast_by(backend, layout, values, dtype).reshape(-1).contiguous(), values, layout)


@pytest.mark.parametrize("backend", BACKENDS)
def test_zero_fills_and_repeats_beside_a_cast(backend: str) -> None:
    dims = {"h": 3}
    target = lk.Spec("[_:(h 2) pad:h]", dims=dims, dtype=torch.bfloat16, padding={"pad": "zero"})
    held = torch.ones(9, dtype=torch.bfloat16)
    lk.compile({"s": lk.Spec("h", dims=dims)}, {"t": target}).run(
        {"s": torch.tensor([1.0, 2.0, 3.0])}, {"t": held}, backend
    )
    assert held.tolist() == [1, 1, 2, 2, 3, 3, 0, 0, 0]

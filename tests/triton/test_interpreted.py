# SPDX-License-Identifier: Apache-2.0
"""The tests of all backends, on Triton's kernels in its interpreter."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import test_casts
import test_cases
import test_random_layouts
import torch
from hypothesis import given, settings
from shadow import CASES, Case

PLACES = pytest.mark.parametrize("place", test_cases.PLACES, ids=["aligned", "misaligned", "strided"])


@PLACES
@pytest.mark.parametrize("dtype", test_cases.DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case, dtype: torch.dtype, place: dict[str, Any]) -> None:
    test_cases.test_case(case, "triton", dtype, place)


@settings(test_random_layouts.few, max_examples=40)
@given(r=test_random_layouts.randoms)
def test_random_layouts_arrive(r: Random) -> None:
    test_random_layouts.test_every_element_arrives.hypothesis.inner_test("triton", r)


@test_casts.pairs
def test_every_pattern_is_rounded_to_nearest_even(held: torch.dtype, wanted: torch.dtype) -> None:
    test_casts.test_every_pattern_is_rounded_to_nearest_even(held, wanted, "triton")


@PLACES
@pytest.mark.parametrize("layout", ["a b", "b a"])
@test_casts.pairs
def test_a_cast_in_rows_and_transposed(held: torch.dtype, wanted: torch.dtype, layout: str, place: Any) -> None:
    test_casts.test_a_cast_is_the_same_in_rows_and_transposed(held, wanted, "triton", layout, place)


@pytest.mark.parametrize("dtype", test_casts.FLOATS, ids=str)
def test_without_a_cast_no_bit_changes(dtype: torch.dtype) -> None:
    test_casts.test_without_a_cast_no_bit_changes(dtype, "triton")


def test_zero_fills_and_repeats_beside_a_cast() -> None:
    test_casts.test_zero_fills_and_repeats_beside_a_cast("triton")

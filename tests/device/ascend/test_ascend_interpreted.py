# SPDX-License-Identifier: Apache-2.0
"""The tests of all backends, on the NPU's kernels in triton-ascend's interpreter."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import test_cases
import test_casts
import test_random_layouts
import torch
from hypothesis import given, settings
from shadow import CASES, Case

PLACES = pytest.mark.parametrize("place", test_cases.PLACES, ids=["aligned", "misaligned", "strided"])


@PLACES
@pytest.mark.parametrize("dtype", test_cases.DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case, dtype: torch.dtype, place: dict[str, Any]) -> None:
    test_cases.test_case(case, "triton-ascend", dtype, place)


@settings(test_random_layouts.few, max_examples=40)
@given(r=test_random_layouts.randoms)
def test_random_layouts_arrive(r: Random) -> None:
    test_random_layouts.test_every_element_arrives.hypothesis.inner_test("triton-ascend", r)


@test_casts.pairs
def test_every_pattern_is_rounded_to_nearest_even(held: torch.dtype, wanted: torch.dtype) -> None:
    test_casts.test_every_pattern_is_rounded_to_nearest_even(held, wanted, "triton-ascend")


def test_zero_fills_and_repeats_beside_a_cast() -> None:
    test_casts.test_zero_fills_and_repeats_beside_a_cast("triton-ascend")

# SPDX-License-Identifier: Apache-2.0
"""The tests of all backends, on Triton's kernels in its interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import test_cases
import test_casts
import test_random_layouts
import torch
from hypothesis import given, settings
from shadow import CASES, Case, guarded

import layout_kernels as lk
from layout_kernels.backends import recipes
from layout_kernels.testing import assert_same_bytes, tagged

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


@pytest.fixture
def short_transposes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every transpose is taken for one, also those that are better moved element by element."""
    monkeypatch.setattr(recipes, "SHORTEST", 2)
    recipes.recipes.cache_clear()
    yield
    recipes.recipes.cache_clear()


@pytest.mark.usefixtures("short_transposes")
@PLACES
@pytest.mark.parametrize("dtype", [torch.int16, torch.float32], ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_with_short_transposes(case: Case, dtype: torch.dtype, place: dict[str, Any]) -> None:
    test_cases.test_case(case, "triton", dtype, place)


@pytest.mark.usefixtures("short_transposes")
@settings(test_random_layouts.few, max_examples=40)
@given(r=test_random_layouts.randoms)
def test_random_layouts_arrive_with_short_transposes(r: Random) -> None:
    test_random_layouts.test_every_element_arrives.hypothesis.inner_test("triton", r)


@PLACES
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize(
    ("ours", "theirs", "dims"),
    [
        ("a b", "b a", {"a": 150, "b": 136}),  # several tiles both ways, and their ends
        ("a b", "b a", {"a": 33, "b": 17}),  # nothing divides
        ("e h (i [gate up])", "e ([gate up] i) h", {"e": 2, "h": 48, "i": 40}),  # two digits in a row of the source
        ("h (e [gate up] i)", "e ([gate up] i) h", {"e": 3, "h": 64, "i": 24}),
        ("a b c d", "d b c a", {"a": 16, "b": 3, "c": 5, "d": 32}),  # loops around the tile
        ("a b", "b1 a b0", {"a": 48, "b": ("b1", "b0"), "b1": 12, "b0": 16}),  # tiles of an engine
    ],
)
def test_transposes(ours: str, theirs: str, dims: dict[str, Any], dtype: torch.dtype, place: dict[str, Any]) -> None:
    plan = lk.compile({"s": lk.Spec(ours, dims=dims)}, {"t": lk.Spec(theirs, dims=dims)})
    source, target = (guarded(spec.shape(), dtype, **place) for spec in (plan.sources["s"], plan.targets["t"]))
    source.tensor.copy_(tagged(plan.sources["s"], dtype))
    plan.run({"s": source.tensor}, {"t": target.tensor}, "triton")
    assert_same_bytes(target.tensor, tagged(plan.targets["t"], dtype))
    target.assert_untouched(theirs)

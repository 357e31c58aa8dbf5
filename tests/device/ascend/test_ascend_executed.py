# SPDX-License-Identifier: Apache-2.0
"""The tests of all backends, on what triton-ascend makes of the NPU's kernels, compiled for the CPU and run there."""

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
from lowered import Kernel, Lowering, missing_tools
from shadow import CASES, Case, guarded

import layout_kernels as lk
from layout_kernels.backends import recipes
from layout_kernels.testing import assert_same_bytes, tagged

pytestmark = pytest.mark.skipif(bool(missing_tools()), reason=f"not installed: {', '.join(missing_tools())}")
PLACES = pytest.mark.parametrize("place", test_cases.PLACES, ids=["aligned", "misaligned", "strided"])


@pytest.fixture(scope="module")
def lowering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lowering]:
    process = Lowering(tmp_path_factory.mktemp("lowered"))
    yield process
    process.close()


@pytest.fixture(autouse=True)
def kernels(lowering: Lowering, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Kernel]]:
    """Both kernels are the lowered ones; each test must have run them."""
    from layout_kernels.backends import triton_ascend_kernels

    stand_ins = [Kernel(name, lowering) for name in ("rows", "transposes")]
    monkeypatch.setattr(triton_ascend_kernels, "rows", stand_ins[0])
    monkeypatch.setattr(triton_ascend_kernels, "transposes", stand_ins[1])
    yield stand_ins
    assert sum(kernel.programs_run for kernel in stand_ins) > 0


@PLACES
@pytest.mark.parametrize("dtype", test_cases.DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case, dtype: torch.dtype, place: dict[str, Any]) -> None:
    test_cases.test_case(case, "triton-ascend", dtype, place)


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
    test_cases.test_case(case, "triton-ascend", dtype, place)


@settings(test_random_layouts.few, max_examples=60)
@given(r=test_random_layouts.randoms)
def test_random_layouts_arrive(r: Random) -> None:
    test_random_layouts.test_every_element_arrives.hypothesis.inner_test("triton-ascend", r)


@test_casts.pairs
def test_every_pattern_is_rounded_to_nearest_even(held: torch.dtype, wanted: torch.dtype) -> None:
    test_casts.test_every_pattern_is_rounded_to_nearest_even(held, wanted, "triton-ascend")


@pytest.mark.parametrize("layout", ["a b", "b a"])
@test_casts.pairs
def test_a_cast_in_rows_and_transposed(held: torch.dtype, wanted: torch.dtype, layout: str) -> None:
    test_casts.test_a_cast_is_the_same_in_rows_and_transposed(held, wanted, "triton-ascend", layout, {"shift": 1})


@PLACES
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize(
    ("ours", "theirs", "dims"),
    [
        ("a b", "b a", {"a": 150, "b": 136}),  # several tiles both ways, and their ends
        ("e h (i [gate up])", "e ([gate up] i) h", {"e": 2, "h": 48, "i": 40}),
        ("h (e [gate up] i)", "e ([gate up] i) h", {"e": 3, "h": 64, "i": 24}),
        ("a b", "b1 a b0", {"a": 48, "b": ("b1", "b0"), "b1": 12, "b0": 16}),  # a fractal format
        ("a b c", "b a c", {"a": 5, "b": 7, "c": 20_000}),  # rows longer than a tile
    ],
)
def test_larger_than_a_tile(ours: str, theirs: str, dims: dict[str, Any], dtype: torch.dtype, place: Any) -> None:
    plan = lk.compile({"s": lk.Spec(ours, dims=dims)}, {"t": lk.Spec(theirs, dims=dims)})
    source, target = (guarded(spec.shape(), dtype, **place) for spec in (plan.sources["s"], plan.targets["t"]))
    source.tensor.copy_(tagged(plan.sources["s"], dtype))
    plan.run({"s": source.tensor}, {"t": target.tensor}, "triton-ascend")
    assert_same_bytes(target.tensor, tagged(plan.targets["t"], dtype))
    target.assert_untouched(theirs)


def test_zero_fills_and_repeats_beside_a_cast() -> None:
    test_casts.test_zero_fills_and_repeats_beside_a_cast("triton-ascend")

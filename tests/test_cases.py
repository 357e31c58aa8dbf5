# SPDX-License-Identifier: Apache-2.0
"""Right answers, listed element by element, on every backend: there, and back through the inverse."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from shadow import BACKENDS, CASES, Case, filled

import layout_kernels as lk
from layout_kernels.testing import assert_same_bytes

DTYPES = [torch.int16, torch.bfloat16, torch.float32, torch.int64, torch.complex128]
PLACES: list[dict[str, Any]] = [{}, {"shift": 1}, {"holes": True}]


def values_for(values: list[int], dtype: torch.dtype) -> list[int]:
    """Values that the dtype holds exactly: a bf16 holds 8 bits of them."""
    return [value & 0xFF if dtype == torch.bfloat16 and value >= 0 else value for value in values]


def place_for(spec: lk.Spec, place: dict[str, Any]) -> dict[str, Any]:
    return {} if spec.declared is not None else place


@pytest.mark.parametrize("place", PLACES, ids=["aligned", "misaligned", "strided"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case, backend: str, dtype: torch.dtype, place: dict[str, Any]) -> None:
    def held(side: str, specs: dict[str, lk.Spec], only_padding: bool = False) -> dict[str, Any]:
        tensors = {}
        for key, spec in specs.items():
            values = [-1] * len(case.values[side, key]) if only_padding else values_for(case.values[side, key], dtype)
            tensors[key] = filled(values, case.shapes[side, key], dtype, **place_for(spec, place))
        return tensors

    plan = lk.compile(case.sources, case.targets)
    sources = held("sources", case.sources)
    targets, expected = held("targets", case.targets, only_padding=True), held("targets", case.targets)
    bound = plan.bind({k: g.tensor for k, g in sources.items()}, {k: g.tensor for k, g in targets.items()}, backend)
    for _ in range(2):  # running twice changes nothing
        bound.run()
        for key, guard in targets.items():
            assert_same_bytes(guard.tensor, expected[key].tensor, key)
            guard.assert_untouched(key)

    back = held("sources", case.sources, only_padding=True)
    plan.inverse().run({k: g.tensor for k, g in targets.items()}, {k: g.tensor for k, g in back.items()}, backend)
    for key, guard in back.items():
        padded = set(case.sources[key].layout.tags) & {"pad"}
        if padded:  # what the source held in its padding has gone nowhere, and the poison must still stand there
            again = plan.bind(
                {k: g.tensor for k, g in back.items()}, {k: g.tensor for k, g in targets.items()}, backend
            )
            again.run()
            assert_same_bytes(targets[next(iter(targets))].tensor, expected[next(iter(targets))].tensor, key)
        else:
            assert_same_bytes(guard.tensor, sources[key].tensor, key)
        guard.assert_untouched(key)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_plan_is_proved_saved_and_equal(case: Case, tmp_path: Any) -> None:
    plan = lk.compile(case.sources, case.targets)
    plan.check()
    plan.save(tmp_path / "plan")
    loaded = lk.CopyPlan.load(tmp_path / "plan")
    loaded.check()
    assert loaded == plan
    assert hash(loaded) == hash(plan)
    assert str(len(plan.table)) in plan.explain()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_listing_gives_the_same_answers(case: Case) -> None:
    """The reference conversion of `layout_kernels.testing`, which knows no algebra."""
    tensors = {
        k: filled(case.values["sources", k], case.shapes["sources", k], torch.int32).tensor for k in case.sources
    }
    before = {
        k: filled([-1] * len(case.values["targets", k]), case.shapes["targets", k], torch.int32).tensor
        for k in case.targets
    }
    result = lk.testing.convert(case.sources, tensors, case.targets, before)
    for key in case.targets:
        assert_same_bytes(
            result[key], filled(case.values["targets", key], case.shapes["targets", key], torch.int32).tensor, key
        )

# SPDX-License-Identifier: Apache-2.0
"""A plan is made once and replayed: planning groups tensors, a run costs the same Python for any number of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

import layout_kernels as lk
from layout_kernels.families import published
from layout_kernels.pieces import gather


def expert_copy(experts: int) -> lk.CopyPlan:
    dims = {"e": experts, "i": 2, "h": 3}
    sources = {f"fc1.{e}": lk.Spec("([gate up] i) h", of="fc1", dims=dims, at={"e": e}) for e in range(experts)}
    return lk.compile(sources, {"w13": lk.Spec("e h ([gate up] i)", of="fc1", dims=dims)})


def python_calls(run: Callable[[], Any]) -> int:
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def test_a_run_costs_the_same_python_for_any_number_of_tensors() -> None:
    counts = set()
    for experts in (3, 300):
        plan = expert_copy(experts)
        sources = {key: torch.zeros(spec.shape()) for key, spec in plan.sources.items()}
        bound = plan.bind(sources, {"w13": torch.zeros(plan.targets["w13"].shape())}, "cpu")
        assert bound.launches == 1
        counts.add(python_calls(bound.run))
    assert len(counts) == 1


def test_a_whole_model_is_a_few_groups() -> None:
    """Qwen3-30B-A3B, 48 layers x 128 experts, tp4 ep4: its tens of thousands of tensors are some patterns a rank."""
    family = lk.family(published("qwen3-30b-a3b"))
    sources = {}
    for rank in range(4):
        mesh = {"tp": (4, rank), "ep": (4, rank), "etp": (1, 0)}
        sources |= {(rank, name): spec for name, spec in family.specs("megatron", mesh=mesh).items()}
    assert len(sources) > 12_000
    groups, keys = gather(sources, None, {})
    assert sorted(keys, key=repr) == sorted(sources, key=repr)
    assert len(groups) < 100


def test_a_whole_model_is_planned_and_proved() -> None:
    family = lk.family(published("qwen3-30b-a3b"))
    sources, targets = {}, {}
    for rank in range(4):
        mesh = {"tp": (4, rank), "ep": (4, rank), "etp": (1, 0)}
        sources |= {(rank, name): spec for name, spec in family.specs("megatron", mesh=mesh).items()}
        targets |= {(rank, name): spec for name, spec in family.specs("vllm", mesh={"tp": (4, rank)}).items()}
    plan = lk.compile(sources, targets, replicas="first")
    plan.check()
    assert plan.elements > 30_000_000_000

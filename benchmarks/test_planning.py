# SPDX-License-Identifier: Apache-2.0
"""Planning the whole of Qwen3-30B-A3B: 48 layers x 128 experts, trainers tp4 ep4 -> vLLM tp4, all ranks at once."""

from __future__ import annotations

from typing import Any

import pytest

import layout_kernels as lk
from layout_kernels.families import published

Specs = dict[tuple[int, str], lk.Spec]


def describe() -> tuple[Specs, Specs]:
    family = lk.family(published("qwen3-30b-a3b"))
    sources: Specs = {}
    targets: Specs = {}
    for rank in range(4):
        mesh = {"tp": (4, rank), "ep": (4, rank), "etp": (1, 0)}
        sources |= {(rank, name): spec for name, spec in family.specs("megatron", mesh=mesh).items()}
        targets |= {(rank, name): spec for name, spec in family.specs("vllm", mesh={"tp": (4, rank)}).items()}
    return sources, targets


@pytest.mark.parametrize("what", ["specs", "plan"])
def test_planning(benchmark: Any, what: str) -> None:
    if what == "specs":
        benchmark.pedantic(describe, rounds=3)
    else:
        sources, targets = describe()
        benchmark.pedantic(lambda: lk.compile(sources, targets, replicas="first"), rounds=3)

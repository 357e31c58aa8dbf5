# SPDX-License-Identifier: Apache-2.0
"""The tables against what live vLLM engines hold: names, shapes and dtypes, recorded by `record_vllm.py`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from record_vllm import RECORD

import layout_kernels as lk
from layout_kernels.families.judged import JUDGES

LIVE: dict[str, dict[str, Any]] = json.loads(RECORD.read_text())
SHORT = {"torch.bfloat16": "bf16", "torch.float32": "f32"}
# Families whose experts on a CPU lie in an order that the tables do not describe: names and shapes are the same.
OTHER_KERNEL = {"gpt_oss": "vllm"}


def test_the_list_of_judged_families_is_true() -> None:
    assert {one["config"]["model_type"] for one in LIVE.values()} == JUDGES["vLLM"]


@pytest.mark.parametrize(
    ("name", "part"), [(name, part) for name, one in LIVE.items() for part in one if part != "config"]
)
def test_parameters(name: str, part: str) -> None:
    config = LIVE[name]["config"]
    specs = lk.family(config).specs(OTHER_KERNEL.get(config["model_type"], "vllm-cpu"), part=part, dtype="bfloat16")
    assert {key: [SHORT[str(spec.dtype)], *spec.shape()] for key, spec in specs.items()} == LIVE[name][part]

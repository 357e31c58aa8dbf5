# SPDX-License-Identifier: Apache-2.0
"""Further families, trained in real Megatron-Core and judged by the logits of real transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import processes
import pytest
from test_end_to_end import CASES as FIRST
from test_end_to_end import receiver, test_trained_weights_give_the_same_logits, trainer
from tiny_models import CONFIGS

from layout_kernels.families.judged import JUDGES
from layout_kernels.testing import free_port

pytestmark = pytest.mark.peers

CASES = [
    ("llama", "tp2", "sequential", "local"),
    ("llama", "tp2-sp", "sequential", "te"),
    ("qwen2", "tp2", "sequential", "local"),
    ("qwen2", "tp2-sp", "sequential", "te"),
    ("qwen2_moe", "tp2-sp", "sequential", "local"),
    ("qwen2_moe", "ep2", "te", "te"),
    ("deepseek_v3", "tp2-ep2-sp", "grouped", "local"),
    ("deepseek_v3", "ep2", "te", "te"),
    ("deepseek_v3_no_q_rank", "tp2-sp", "sequential", "local"),
    ("deepseek_v3_no_q_rank", "ep2", "grouped", "local"),
]


@pytest.fixture(params=CASES, ids=lambda case: "-".join(case))
def answers(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    case = request.param
    address = f"127.0.0.1:{free_port()}"
    store = f"file://{tmp_path}/store"
    workers = [processes.Worker(f"trainer{rank}", trainer, (rank, case, store, address)) for rank in range(2)]
    workers.append(processes.Worker("receiver", receiver, (case, address)))
    return processes.run(workers, tmp_path, transformer_engine=case[3] == "te")


def test_the_list_of_judged_families_is_true() -> None:
    names = {case[0] for case in (*CASES, *FIRST)}
    assert {CONFIGS[name]["model_type"] for name in names} == JUDGES["Megatron-Core"]


__all__ = ["answers", "test_trained_weights_give_the_same_logits"]

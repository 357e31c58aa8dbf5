# SPDX-License-Identifier: Apache-2.0
"""Of long lists of cases a fixed core runs and a share that changes by commit; LAYOUT_KERNELS_SWEEP=all runs all."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
if str(HERE) not in sys.path:  # the helpers beside this file
    sys.path.insert(0, str(HERE))

LONG = frozenset({"test_trainers", "test_engines", "test_gate_and_up_in_turn", "test_fully_sharded_data_parallel"})
LONG |= {"test_latent_attention_of_other_trainers", "test_storages_of_experts", "test_kernels"}
SHARES = 6


def _core(item: Any) -> bool:
    """Every family once in training and once in an engine, cut in two."""
    params = item.callspec.params
    options = params.get("options")
    return params.get("tp") == 2 and (params.get("system") == "vllm" or getattr(options, "spec", "") == "te")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("LAYOUT_KERNELS_SWEEP") == "all":
        return
    from share import turn

    chosen, left = [], []
    for number, item in enumerate(items):
        long = HERE in Path(item.path).parents and getattr(item, "originalname", "") in LONG
        keep = not long or _core(item) or (number + turn()) % SHARES == 0
        (chosen if keep else left).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = chosen

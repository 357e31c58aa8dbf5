# SPDX-License-Identifier: Apache-2.0
"""The tables against live Megatron-Core models: every tensor has its Spec, and it is the one that the family gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import processes
import pytest
from tiny_models import CONFIGS, experts_of

pytestmark = pytest.mark.peers

CASES = [
    *[(family, topology, "sequential", "local") for family in CONFIGS for topology in ("alone", "tp2")],
    *[(family, "tp2-ep2-sp", "sequential", "local") for family, config in CONFIGS.items() if experts_of(config)],
    *[(family, "tp2", "te", "te") for family in CONFIGS],
    ("glm4_moe_lite", "ep2", "te", "te"),
    ("glm4_moe", "tp2", "grouped", "local"),
    ("glm4_moe_lite", "tp2-ep2-sp", "grouped", "local"),
]


def compare(case: tuple[str, str, str, str], rank: int, store: str) -> int:
    """One rank: builds the model; its live Specs are those of the family, name by name. Returns their number."""
    import megatron_cpu

    family_name, topology, experts, spec = case
    megatron_cpu.install(transformer_engine=spec == "te")
    import megatron_models

    import layout_kernels as lk

    mesh = megatron_models.TOPOLOGIES[topology]
    megatron_models.start(mesh, rank, store)
    model: Any = megatron_models.build(CONFIGS[family_name], mesh, experts=experts, spec=spec)
    family = lk.family(CONFIGS[family_name])
    live, tensors = lk.megatron.specs(model, family=family)
    wanted = family.specs("megatron", spec=spec, experts=experts, mesh=lk.megatron.mesh(), vocab_multiple=48)
    assert {name: spec.replace(dtype=None) for name, spec in wanted.items()} == live
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == {n: s.shape() for n, s in wanted.items()}
    stored = {name for name in model.state_dict() if not name.endswith("_extra_state")}
    assert stored == set(live)
    assert all(tensors[name].data_ptr() == tensor.data_ptr() for name, tensor in model.named_parameters())
    return len(live)


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_live_model(case: tuple[str, str, str, str], tmp_path: Path) -> None:
    import megatron_models

    world = megatron_models.TOPOLOGIES[case[1]].world
    workers = [
        processes.Worker(f"rank{rank}", compare, (case, rank, f"file://{tmp_path}/store")) for rank in range(world)
    ]
    counts = processes.run(workers, tmp_path, transformer_engine=case[3] == "te")
    assert all(counts.values())

# SPDX-License-Identifier: Apache-2.0
"""Weights trained by real Megatron-Core arrive in a live transformers model, and both compute the same logits.

Nothing of this project judges: two processes train a real model of Megatron-Core 0.16.1, a third holds a real model of
transformers 5.24 full of NaN; a sync writes it in place; logits on the same tokens must agree. Then they train and sync
again. At the end known mistakes are made on purpose, and each must show.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import processes
import pytest
from comparison import AGREE, SHOWS, as_numpy, largest_difference, receiving_side, token_batches
from tiny_models import CONFIGS

from layout_kernels.testing import free_port

pytestmark = pytest.mark.peers

ROUNDS = 2
STEPS = 4
NEAR_TIE = 1e-4  # batches of tokens on which a router is closer to a tie are left out

# family, topology of the trainers, storage of experts, layer classes. Megatron-Core refuses to train a mixture of
# experts under tensor parallelism without sequence parallelism.
CASES = [
    ("qwen3", "tp2", "sequential", "local"),
    ("qwen3", "tp2-sp", "sequential", "local"),
    ("qwen3_tied", "tp2-sp", "sequential", "local"),
    ("qwen3", "tp2", "sequential", "te"),
    *[
        (family, topology, "sequential", "local")
        for family in ("qwen3_moe", "glm4_moe", "glm4_moe_lite")
        for topology in ("tp2-sp", "ep2", "tp2-ep2-sp")
    ],
    ("qwen3_moe", "tp2-sp", "grouped", "local"),
    ("glm4_moe", "ep2", "grouped", "local"),
    ("glm4_moe_lite", "ep2", "grouped", "local"),
    ("glm4_moe_lite", "tp2-ep2-sp", "grouped", "local"),
    ("qwen3_moe", "ep2", "te", "te"),
    ("glm4_moe", "tp2-ep2-sp", "te", "te"),
    ("glm4_moe_lite", "tp2-sp", "te", "te"),
]


def trainer(rank: int, case: tuple[str, str, str, str], store: str, address: str) -> dict[str, Any]:
    """One rank: builds, and each round trains and syncs. Returns what it computes on the batches of tokens."""
    import megatron_cpu
    import torch

    torch.set_num_threads(1)
    family, topology, experts, spec = case
    megatron_cpu.install(transformer_engine=spec == "te")
    import megatron_models
    import megatron_training

    import layout_kernels as lk

    mesh = megatron_models.TOPOLOGIES[topology]
    megatron_models.start(mesh, rank, store)
    config = CONFIGS[family]
    model = megatron_models.build(config, mesh, experts=experts, spec=spec)
    padded = model.vocab_size != config["vocab_size"]
    specs, tensors = lk.megatron.specs(model, family=lk.family(config)) if padded else lk.megatron.specs(model)
    channel = lk.connect(address, role="trainer", rank=rank, world=mesh.world, backend="gloo", time_limit=60)
    sender = lk.WeightSender(specs, tensors, channel)
    losses, rounds = [], []
    for version in range(ROUNDS):
        losses += megatron_training.train(model, STEPS, vocabulary=config["vocab_size"], seed=version)
        megatron_training.assert_replicas_agree(model)
        sender.sync(version)
        batches = token_batches(config)
        margins = [megatron_models.routing_margin(model, tokens) for tokens in batches]
        found = [megatron_models.logits(model, tokens, config["vocab_size"]) for tokens in batches]
        rounds.append((margins, [as_numpy(logits) for logits in found]))
    return {"losses": losses, "rounds": rounds}


def receiver(case: tuple[str, str, str, str], address: str) -> dict[str, Any]:
    """The live model: each round is written by a sync and computes; at the end known mistakes are made in it."""
    import faults
    import torch
    from transformers_cpu import LiveModel

    import layout_kernels as lk

    torch.set_num_threads(1)
    live = LiveModel(CONFIGS[case[0]])
    specs, tensors = receiving_side(live)
    addresses = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    channel = lk.connect(address, role="rollout", rank=0, world=1, backend="gloo", time_limit=60)
    weights = lk.WeightReceiver(specs, tensors, channel)
    rounds, batches = [], token_batches(live.config)
    for version in range(ROUNDS):
        weights.sync(version)
        rounds.append([as_numpy(live.logits(tokens)) for tokens in batches])
    now = {**live.live_tensors(), **live.draft_tensors()}
    moved = [name for name, tensor in now.items() if tensor.data_ptr() != addresses[name]]
    wrong = {}
    for what, (shown, fault) in faults.faults_of(live).items():
        with faults.made(fault, live):
            wrong[what] = (shown, [as_numpy(live.logits(tokens)) for tokens in batches])
    return {"rounds": rounds, "moved": moved, "wrong": wrong}


@pytest.fixture(params=CASES, ids=lambda case: "-".join(case))
def answers(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    case = request.param
    address = f"127.0.0.1:{free_port()}"
    workers = [
        processes.Worker(f"trainer{rank}", trainer, (rank, case, f"file://{tmp_path}/store", address))
        for rank in range(2)
    ]
    workers.append(processes.Worker("receiver", receiver, (case, address)))
    return processes.run(workers, tmp_path, transformer_engine=case[3] == "te")


def test_trained_weights_give_the_same_logits(answers: dict[str, Any]) -> None:
    first, second, live = answers["trainer0"], answers["trainer1"], answers["receiver"]
    assert first["losses"][-1] < first["losses"][0], "the trainer did not learn"
    assert not live["moved"], "tensors were not written in place"
    for version in range(ROUNDS):
        for batch in clear_batches(first, second, version):
            right = first["rounds"][version][1][batch]
            got = live["rounds"][version][batch]
            assert set(got) == set(right)
            differences = {name: largest_difference(right[name], got[name]) for name in right}
            assert max(differences.values()) < AGREE, f"round {version}, batch {batch}: {differences}"
    assert_trained_between_rounds(first)
    assert_known_mistakes_show(first, second, live)


def clear_batches(first: dict[str, Any], second: dict[str, Any], version: int) -> list[int]:
    """Batches on which no router of either rank is near a tie."""
    margins = [min(pair) for pair in zip(first["rounds"][version][0], second["rounds"][version][0], strict=True)]
    clear = [batch for batch, margin in enumerate(margins) if margin > NEAR_TIE]
    assert clear, f"every batch is near a tie ({margins}): choose other tokens"
    return clear


def assert_trained_between_rounds(first: dict[str, Any]) -> None:
    """The second sync had something to move."""
    before, after = (first["rounds"][version][1][0]["main"] for version in (0, ROUNDS - 1))
    assert largest_difference(before, after) > 0.1


def assert_known_mistakes_show(first: dict[str, Any], second: dict[str, Any], live: dict[str, Any]) -> None:
    """Each mistake changes the logits so much that the comparison above would have seen it."""
    right = first["rounds"][ROUNDS - 1][1]
    batches = clear_batches(first, second, ROUNDS - 1)
    shown = {
        what: max(largest_difference(right[batch][part], logits[batch][part]) for batch in batches)
        for what, (part, logits) in live["wrong"].items()
    }
    assert min(shown.values()) > SHOWS, shown

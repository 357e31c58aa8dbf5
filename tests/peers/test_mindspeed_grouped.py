# SPDX-License-Identifier: Apache-2.0
"""Grouped experts, whose shape does not describe their bytes: the right reading and two known wrong ones, by meaning.

MindSpeed's grouped experts and Megatron-Core's legacy GroupedMLP store all experts of a rank in `weight1`, declared
`h (e [gate up] i)`; their forward reads the same bytes as `e h ([gate up] i)`. A reader who trusts the shape gets
tensors of the right shape with all the right numbers, and a model that computes something else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import processes
import pytest
from comparison import AGREE, SHOWS, as_numpy, largest_difference, receiving_side, token_batches
from tiny_models import CONFIGS, draft_layers_of, experts_of, sparse_layers_of

pytestmark = pytest.mark.peers

RANKS = 4
FAMILIES = ("qwen3_moe", "glm4_moe", "glm4_moe_lite")
WRONG = ("a legal view of the wrong order", "ranks concatenated on the declared dimension 1")


def readings(family: str, store: str) -> dict[str, Any]:
    """Trains a model whose experts are stored so, cuts it into four expert ranks, and reads these in each way."""
    import megatron_cpu
    import torch
    from transformers_cpu import LiveModel

    torch.set_num_threads(1)
    megatron_cpu.install()
    import megatron_models as megatron
    import megatron_training as training

    config = CONFIGS[family]
    megatron.start(megatron.TOPOLOGIES["alone"], 0, store)
    model = megatron.build(config, megatron.TOPOLOGIES["alone"], experts="grouped")
    training.train(model, 4, vocabulary=config["vocab_size"], seed=0)
    batches = token_batches(config)
    ranks = [rank_tensors(model, config, rank) for rank in range(RANKS)]
    live = LiveModel(config)
    convert(config, ranks, live)
    answers = {
        "Megatron": [as_numpy(megatron.logits(model, tokens, config["vocab_size"])) for tokens in batches],
        "ours": [as_numpy(live.logits(tokens)) for tokens in batches],
        "margin": min(megatron.routing_margin(model, tokens) for tokens in batches),
    }
    for wrong in WRONG:
        answers[wrong + ", same numbers"] = read_wrongly(config, ranks, live, wrong)
        answers[wrong] = [as_numpy(live.logits(tokens)) for tokens in batches]
    return answers


def rank_tensors(model: Any, config: dict[str, Any], rank: int) -> dict[str, Any]:
    """What one of four expert ranks holds: its experts' bytes together, declared as [h, experts x 2 x width]."""
    hidden, experts = config["hidden_size"], experts_of(config)
    held = {}
    for name, tensor in model.state_dict().items():
        if name.endswith("experts.weight1"):
            held[name] = tensor.view(experts, hidden, -1).chunk(RANKS)[rank].clone().view(hidden, -1)
        elif name.endswith("experts.weight2"):
            held[name] = tensor.view(experts, -1, hidden).chunk(RANKS)[rank].clone().view(-1, hidden)
        elif tensor is not None and "_extra_state" not in name:
            held[name] = tensor
    return held


def convert(config: dict[str, Any], ranks: list[dict[str, Any]], live: Any) -> None:
    """This project's conversion of the four ranks' tensors into the live model, in place."""
    import layout_kernels as lk

    family = lk.family(config)
    sources, tensors = {}, {}
    for rank, held in enumerate(ranks):
        specs = family.specs(
            "megatron", spec="local", experts="grouped", mesh={"ep": (RANKS, rank), "etp": (1, 0)}, vocab_multiple=16
        )
        assert set(specs) == set(held), sorted(set(specs) ^ set(held))
        sources |= {(rank, name): spec for name, spec in specs.items()}
        tensors |= {(rank, name): tensor for name, tensor in held.items()}
    targets, written = receiving_side(live)
    lk.compile(sources, targets, replicas="first").run(tensors, written)


def read_wrongly(config: dict[str, Any], ranks: list[dict[str, Any]], live: Any, how: str) -> bool:
    """Writes the first projections of the live model's experts as the mistake would; True if no number was lost."""
    import torch

    hidden, experts = config["hidden_size"], experts_of(config)
    same = True
    for name, target in first_projections(config, live).items():
        parts = [held[name] for held in ranks]
        if how == WRONG[0]:
            read = torch.cat([part.view(hidden, experts // RANKS, -1).permute(1, 2, 0) for part in parts])
        else:
            read = torch.cat(parts, dim=1).view(experts, hidden, -1).transpose(1, 2)
        assert read.shape == target.shape
        same = same and torch.equal(read.flatten().sort().values, target.flatten().sort().values)
        target.copy_(read)
    return same


def first_projections(config: dict[str, Any], live: Any) -> dict[str, Any]:
    """{Megatron's name of the grouped tensor: the live module's fused tensor}, of the model and its draft."""
    sparse = [layer for layer, kind in enumerate(sparse_layers_of(config)) if kind]
    found = {
        f"decoder.layers.{n}.mlp.experts.weight1": live.model.model.layers[n].mlp.experts.gate_up_proj.data
        for n in sparse
    }
    if draft_layers_of(config):
        found["mtp.layers.0.transformer_layer.mlp.experts.weight1"] = live.draft.mlp.experts.gate_up_proj.data
    return found


@pytest.fixture(params=FAMILIES)
def answers(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    worker = processes.Worker("readings", readings, (request.param, f"file://{tmp_path}/store"))
    return processes.run([worker], tmp_path)["readings"]  # type: ignore[no-any-return]


def test_the_bytes_decide_what_grouped_experts_mean(answers: dict[str, Any]) -> None:
    assert answers["margin"] > 1e-5, "a router is near a tie: choose other tokens"
    ours = differences(answers, "ours")
    assert max(ours.values()) < AGREE, ours
    for wrong in WRONG:
        assert answers[wrong + ", same numbers"], "a wrong reading moves numbers, it loses none"
        shown = differences(answers, wrong)
        assert min(shown.values()) > SHOWS, (wrong, shown)


def differences(answers: dict[str, Any], reading: str) -> dict[str, float]:
    """{"main": ..., "draft": ...}: the largest difference from Megatron's logits over all batches."""
    pairs = list(zip(answers["Megatron"], answers[reading], strict=True))
    return {part: max(largest_difference(right[part], got[part]) for right, got in pairs) for part in pairs[0][0]}

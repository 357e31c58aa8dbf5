# SPDX-License-Identifier: Apache-2.0
"""Known mistakes, made on purpose in a live model that is right: each must show in its logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from tiny_models import experts_of
from transformers_cpu import LiveModel

Change = Callable[[], None]


@contextmanager
def made(fault: Change, live: LiveModel) -> Iterator[None]:
    """The fault inside the block, the right bytes again behind it."""
    tensors = [*live.live_tensors().values(), *live.draft_tensors().values()]
    right = [tensor.clone() for tensor in tensors]
    fault()
    try:
        yield
    finally:
        for tensor, bytes_before in zip(tensors, right, strict=True):
            tensor.copy_(bytes_before)


def faults_of(live: LiveModel) -> dict[str, tuple[str, Change]]:
    """{what is wrong: (the logits that show it, the change)} for a live model."""
    config, last = live.config, f"model.layers.{live.layers - 1}."
    tensors = live.live_tensors()
    found = {
        "two heads exchanged": ("main", _exchange_heads(config, tensors, "model.layers.0.self_attn.")),
        "gate and up exchanged": ("main", _exchange_gate_and_up(tensors, last)),
    }
    if experts_of(config):
        found["two experts exchanged"] = ("main", _exchange_experts(tensors, last))
    if last + "mlp.gate.e_score_correction_bias" in tensors:
        found["expert bias zeroed"] = ("main", tensors[last + "mlp.gate.e_score_correction_bias"].zero_)
    if live.draft is not None:
        halves = live.extra["eh_proj.weight"].chunk(2, dim=1)
        found["halves of eh_proj exchanged"] = ("draft", lambda: _exchange(*halves))
        block = dict(live.draft.state_dict())
        found["gate and up exchanged in the draft"] = ("draft", _exchange_gate_and_up(block, ""))
        found["two experts exchanged in the draft"] = ("draft", _exchange_experts(block, ""))
        found["two heads exchanged in the draft"] = ("draft", _exchange_heads(config, block, "self_attn."))
        found["expert bias zeroed in the draft"] = ("draft", block["mlp.gate.e_score_correction_bias"].zero_)
    return found


def _exchange(one: torch.Tensor, other: torch.Tensor) -> None:
    kept = one.clone()
    one.copy_(other)
    other.copy_(kept)


def _exchange_gate_and_up(tensors: dict[str, torch.Tensor], prefix: str) -> Change:
    experts = tensors.get(prefix + "mlp.experts.gate_up_proj")
    if experts is not None:
        return lambda: _exchange(*experts.chunk(2, dim=1))
    return lambda: _exchange(tensors[prefix + "mlp.gate_proj.weight"], tensors[prefix + "mlp.up_proj.weight"])


def _exchange_experts(tensors: dict[str, torch.Tensor], prefix: str) -> Change:
    def change() -> None:
        for name in ("gate_up_proj", "down_proj"):
            experts = tensors[f"{prefix}mlp.experts.{name}"]
            _exchange(experts[0], experts[3])

    return change


def _exchange_heads(config: dict[str, int], tensors: dict[str, torch.Tensor], prefix: str) -> Change:
    queries = tensors.get(prefix + "q_b_proj.weight", tensors.get(prefix + "q_proj.weight"))
    assert queries is not None
    heads = queries.view(config["num_attention_heads"], -1, queries.shape[1])
    return lambda: _exchange(heads[0], heads[3])

# SPDX-License-Identifier: Apache-2.0
"""What the tests share: the tokens, what is written where in the live model, and when logits agree."""

from __future__ import annotations

from typing import Any

import numpy
import torch
from transformers_cpu import LiveModel

AGREE = 1e-4  # right conversions are within 2e-5: the peers add in different orders
SHOWS = 0.5
BATCHES = 4


def receiving_side(live: LiveModel) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Specs and tensors: the live model's own names, those of checkpoints for the draft, which it does not have."""
    import layout_kernels as lk

    family = lk.family(live.config)
    tensors = {**live.live_tensors(), **live.draft_tensors()}
    specs = dict(family.specs("transformers"))
    if live.draft is not None:
        draft = f"model.layers.{live.layers}."
        specs |= {name: spec for name, spec in family.specs("hf", mtp="full").items() if name.startswith(draft)}
    assert set(specs) == set(tensors), sorted(set(specs) ^ set(tensors))
    return specs, tensors


def token_batches(config: dict[str, Any]) -> list[torch.Tensor]:
    """The batches that every process computes on."""
    noise = torch.Generator().manual_seed(7)
    return [torch.randint(0, config["vocab_size"], (1, 16), generator=noise) for _ in range(BATCHES)]


def as_numpy(logits: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The same dict with arrays, which travel between processes."""
    return {name: part.numpy() for name, part in logits.items()}


def largest_difference(one: Any, other: Any) -> float:
    """Over all positions; infinity where either holds a NaN."""
    difference = numpy.abs(one - other).max()
    return float("inf") if numpy.isnan(difference) else float(difference)

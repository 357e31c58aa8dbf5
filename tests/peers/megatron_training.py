# SPDX-License-Identifier: Apache-2.0
"""A few real training steps of a Megatron-Core model: its forward and backward, AdamW, and what keeps ranks equal."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from megatron_models import forward, is_expert


def train(
    model: torch.nn.Module, steps: int, *, vocabulary: int, seed: int, length: int = 16, batch: int = 4
) -> list[float]:
    """Real steps of AdamW on a little language (x' = 5 x + 3); returns the losses of this rank."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    data_rank = dist.get_rank() // model.config.tensor_model_parallel_size  # type: ignore[union-attr, operator]
    losses = []
    model.train()
    for step in range(steps):
        noise = torch.Generator().manual_seed(1000 * seed + 10 * step + data_rank)
        tokens = torch.randint(0, vocabulary, (batch, 1), generator=noise)
        for _ in range(length):
            tokens = torch.cat([tokens, (5 * tokens[:, -1:] + 3) % vocabulary], dim=1)
        loss = forward(model, tokens[:, :-1], tokens[:, 1:]).mean()
        optimizer.zero_grad()
        loss.backward()
        synchronise_gradients(model)
        optimizer.step()
        update_expert_biases(model)
        losses.append(loss.item())
    return losses


def synchronise_gradients(model: torch.nn.Module) -> None:
    """What Megatron's data-parallel wrapper and `finalize_model_grads` do; without it replicas drift apart."""
    from megatron.core import parallel_state

    settings: Any = model.config
    tensor = parallel_state.get_tensor_model_parallel_group()
    data = parallel_state.get_data_parallel_group()
    for name, weight in model.named_parameters():
        if weight.grad is None:
            raise AssertionError(f"{name} got no gradient")
        partial = settings.sequence_parallel and getattr(weight, "sequence_parallel", False)
        # The norms of a head see the local heads alone; those of latent attention see the whole latent vector.
        heads = name.endswith(("q_layernorm.weight", "k_layernorm.weight")) and not settings.multi_latent_attention
        if tensor.size() > 1 and (partial or heads) and not is_expert(name):
            dist.all_reduce(weight.grad, group=tensor)
        if data.size() > 1:
            if not is_expert(name) or settings.expert_model_parallel_size == 1:
                dist.all_reduce(weight.grad, group=data)
            weight.grad /= data.size()


def update_expert_biases(model: torch.nn.Module) -> None:
    """Megatron's own rule for the expert bias, from the tokens that each expert got."""
    from megatron.core.transformer.moe.moe_utils import get_updated_expert_bias

    for module in model.modules():
        if getattr(module, "enable_expert_bias", False):
            router: Any = module
            router.expert_bias.copy_(get_updated_expert_bias(router.local_tokens_per_expert, router.expert_bias, 1e-3))
            router.local_tokens_per_expert.zero_()


def assert_replicas_agree(model: torch.nn.Module) -> None:
    """Every tensor that both ranks hold alike has the same bits on both: a check of this file, not of any layout."""
    tensor_size: int = model.config.tensor_model_parallel_size  # type: ignore[union-attr, assignment]
    for name, weight in [*model.named_parameters(), *model.named_buffers()]:
        split = getattr(weight, "tensor_model_parallel", False) and tensor_size > 1
        if is_expert(name) or split or name.endswith("local_tokens_per_expert"):
            continue
        copies = [torch.empty_like(weight.data) for _ in range(dist.get_world_size())]
        dist.all_gather(copies, weight.data.contiguous())
        if any(not torch.equal(copies[0], copy) for copy in copies):
            raise AssertionError(f"the ranks disagree about {name}, which they should hold alike")

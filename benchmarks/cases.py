# SPDX-License-Identifier: Apache-2.0
"""What is measured: layouts of one published model's layer, and the same conversion as weight-sync loops write it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

import layout_kernels as lk
from layout_kernels.families import published

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Case:
    """Sources and targets as Specs, and a function that makes the targets out of the sources with torch alone."""

    name: str
    about: str
    sources: dict[str, lk.Spec]
    targets: dict[str, lk.Spec]
    by_torch: Callable[[Tensors], Tensors]


def cases() -> list[Case]:
    """One 64-expert layer of GLM-4.7-Flash, and the attention of 16 layers of Qwen3-30B-A3B."""
    glm, qwen = published("glm-4.7-flash"), published("qwen3-30b-a3b")
    experts, hidden, width = glm["n_routed_experts"], glm["hidden_size"], glm["moe_intermediate_size"]
    dims = {"e": experts, "h": hidden, "i": width}
    heads, groups = qwen["num_attention_heads"], qwen["num_key_value_heads"]
    qkv = {"l": 16, "g": groups, "r": heads // groups, "d": qwen["head_dim"], "h": qwen["hidden_size"]}

    def spec(
        layout: str, of: str = "fc1", *, at: dict[str, int] | None = None, tp: tuple[int, int] = (1, 0)
    ) -> lk.Spec:
        return lk.Spec(layout, of=of, dims=qkv if of == "qkv" else dims, mesh={"tp": tp}, at=at)

    stacked = {"w13": spec("e ([gate up] i) h")}
    return [
        Case(
            "rows",
            "e ([gate up] i) h -> e ([gate up] i/tp) h, tp 2",
            stacked,
            {f"rank {rank}": spec("e ([gate up] i/tp) h", tp=(2, rank)) for rank in range(2)},
            shard_experts,
        ),
        Case("transpose", "e h w -> e w h", {"weight1": spec("e h ([gate up] i)")}, stacked, transpose_experts),
        Case("interleaved", "h (e w) -> e w h", {"weight1": spec("h (e [gate up] i)")}, stacked, gather_columns),
        Case(
            "qkv",
            "(g [q:r k v] d) h -> q, k, v, 16 layers",
            {f"qkv {layer}": spec("(g [q:r k v] d) h", "qkv", at={"l": layer}) for layer in range(16)},
            {
                f"{part} {layer}": spec(layout, "qkv", at={"l": layer})
                for layer in range(16)
                for part, layout in (("q", "(g [q:r] d) h"), ("k", "(g [k] d) h"), ("v", "(g [v] d) h"))
            },
            lambda tensors: split_qkv(tensors, groups, heads // groups, qwen["head_dim"]),
        ),
    ]


def shard_experts(sources: Tensors) -> Tensors:
    """Each expert's gate and up are cut for every rank, and concatenated again."""
    ranks: dict[str, list[torch.Tensor]] = {"rank 0": [], "rank 1": []}
    for expert in sources["w13"]:
        gate, up = expert.chunk(2, dim=0)
        for rank, (g, u) in enumerate(zip(gate.chunk(2, dim=0), up.chunk(2, dim=0), strict=True)):
            ranks[f"rank {rank}"].append(torch.cat([g, u], dim=0))
    return {name: torch.stack(shards) for name, shards in ranks.items()}


def transpose_experts(sources: Tensors) -> Tensors:
    """Each expert's two halves are transposed and concatenated, then all experts."""
    return {"w13": torch.stack([_halves(expert) for expert in sources["weight1"]])}


def gather_columns(sources: Tensors) -> Tensors:
    """The columns of each expert are cut out of every row first."""
    weight = sources["weight1"]
    return {"w13": torch.stack([_halves(expert) for expert in weight.chunk(64, dim=1)])}


def _halves(expert: torch.Tensor) -> torch.Tensor:
    gate, up = expert.chunk(2, dim=1)
    return torch.cat([gate.t().contiguous(), up.t().contiguous()], dim=0)


def split_qkv(sources: Tensors, groups: int, queries: int, size: int) -> Tensors:
    """Each layer's groups are taken apart."""
    made: Tensors = {}
    for name, weight in sources.items():
        layer = name.split()[1]
        grouped = weight.view(groups, queries + 2, size, -1)
        for part, heads in (("q", slice(0, queries)), ("k", slice(queries, queries + 1)), ("v", slice(-1, None))):
            made[f"{part} {layer}"] = grouped[:, heads].reshape(-1, weight.shape[1]).contiguous()
    return made

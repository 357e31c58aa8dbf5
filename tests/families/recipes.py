# SPDX-License-Identifier: Apache-2.0
"""What trainers hold of a checkpoint, built by plain slicing, stacking and transposing: no word of the notation.

A `Reader` finds in a checkpoint what a layer consists of, whatever the family calls it, with rows as a linear layer
has them; `trained` puts it together as Megatron-Core and MindSpeed do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from tiny_configs import Published

Tensors = dict[str, torch.Tensor]
Named = Iterator[tuple[str, torch.Tensor]]


@dataclass(frozen=True)
class Rank:
    """The coordinates of one rank."""

    tp: tuple[int, int] = (1, 0)
    ep: tuple[int, int] = (1, 0)
    etp: tuple[int, int] = (1, 0)


@dataclass(frozen=True)
class Options:
    """How the trainer is built."""

    spec: str = "local"
    experts: str = "sequential"
    norms: str = "split"
    down: str = "sharded"
    up: str = "whole"
    indexer: str = "nope-first"
    glu_interleave: int = 0
    shared_glu_interleave: int = 0


def rows(whole: torch.Tensor, held: tuple[int, int]) -> torch.Tensor:
    share = whole.shape[0] // held[0]
    return whole[held[1] * share : (held[1] + 1) * share]


def columns(whole: torch.Tensor, held: tuple[int, int]) -> torch.Tensor:
    return rows(whole.T, held).T


def padded(whole: torch.Tensor, multiple: int) -> torch.Tensor:
    missing = -whole.shape[0] % multiple
    return torch.cat([whole, torch.zeros(missing, *whole.shape[1:])])


def in_turn(gate: torch.Tensor, up: torch.Tensor, block: int) -> torch.Tensor:
    """``block`` rows of gate, then ``block`` rows of up, and so on; 0: all of gate, then all of up."""
    block = block or gate.shape[0]
    pieces = [half[start : start + block] for start in range(0, gate.shape[0], block) for half in (gate, up)]
    return torch.cat(pieces)


class Reader:
    """One layer of a checkpoint."""

    def __init__(self, hf: Tensors, at: str, config: dict[str, Any], published: Published) -> None:
        self.hf, self.at, self.config, self.published = hf, at, config, published
        self.attention = f"{at}{published.attention}."
        self.mlp = f"{at}{published.mlp}."
        self.heads, self.hidden = config["num_attention_heads"], config["hidden_size"]

    def has(self, name: str) -> bool:
        return name in self.hf

    def heads_of(self, part: str, kind: str, count: int) -> list[torch.Tensor]:
        """The rows of each head of q, k or v."""
        return list(self.hf[f"{self.attention}{part}_proj.{kind}"].chunk(count))

    @property
    def groups(self) -> int:
        """kv heads of this layer."""
        window = self.config.get("swa_num_key_value_heads")
        if window and self.has(f"{self.attention}attention_sink_bias"):
            return int(window)
        return int(self.config.get("num_key_value_heads", self.heads))

    def gated_mlp(self, at: str, kind: str = "weight") -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]:
        """gate (None where there is none), up, and the way down."""
        down = self.hf.get(f"{at}down_proj.{kind}", torch.empty(0))
        if self.has(f"{at}gate_up_proj.{kind}"):
            gate, up = self.hf[f"{at}gate_up_proj.{kind}"].chunk(2)
            return gate, up, down
        return self.hf.get(f"{at}gate_proj.{kind}"), self.hf[f"{at}up_proj.{kind}"], down

    def expert(self, e: int, kind: str = "weight") -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]:
        """The same of one routed expert."""
        at, experts = f"{self.mlp}experts.", self.published.experts
        if experts == "w":
            gate, down, up = (self.hf[f"{at}{e}.w{part}.{kind}"] for part in (1, 2, 3))
            return gate, up, down
        if experts == "split":
            return self.gated_mlp(f"{at}{e}.", kind)
        ending = "" if kind == "weight" else "_bias"
        both, down = (self.hf[f"{at}{x}{ending}"][e] for x in ("gate_up_proj", "down_proj"))
        if kind == "weight":
            both, down = both.T, down.T
        if experts == "alternating":
            return both[0::2], both[1::2], down
        gate, up = both.chunk(2)
        return gate, up, down


def trained_attention(read: Reader, options: Options, rank: Rank) -> Named:
    config, here = read.config, "self_attention."
    groups, per_group = read.groups, read.heads // read.groups
    for kind in ("weight", "bias"):
        if not read.has(f"{read.attention}k_proj.{kind}"):
            continue
        gated = config["model_type"].startswith(("qwen3_next", "qwen3_5"))
        q = read.heads_of("q", kind, read.heads)
        k, v = (read.heads_of(part, kind, groups) for part in "kv")
        pieces: list[torch.Tensor] = []
        for group in range(groups):
            mine = q[group * per_group : (group + 1) * per_group]
            if gated:  # published: each head's query rows, then its gate rows
                size = k[0].shape[0]
                pieces += [*(head[:size] for head in mine), *(head[size:] for head in mine)]
            else:
                pieces += mine
            pieces += [k[group], v[group]]
        yield f"{here}linear_qkv.{kind}", rows(torch.cat(pieces), rank.tp)
    for part, names in (("q", "q_norm"), ("k", "k_norm")):
        if read.has(f"{read.attention}{names}.weight"):
            norm = read.hf[f"{read.attention}{names}.weight"]
            if config["model_type"] == "minimax_m2":
                size, at = rank.tp
                norm = rows(norm, rank.tp if part == "q" or size <= groups else (groups, at * groups // size))
            yield f"{here}{part}_layernorm.weight", norm
    for name in ("sinks", "attention_sink_bias"):
        if read.has(read.attention + name):
            yield f"{here}core_attention.softmax_offset", rows(read.hf[read.attention + name], rank.tp)
    yield f"{here}linear_proj.weight", columns(read.hf[f"{read.attention}o_proj.weight"], rank.tp)
    if read.has(f"{read.attention}o_proj.bias"):
        yield f"{here}linear_proj.bias", read.hf[f"{read.attention}o_proj.bias"]


def trained_latent(read: Reader, options: Options, rank: Rank) -> Named:
    here, at, hf = "self_attention.", read.attention, read.hf
    fused = options.norms == "fused"
    kv = hf[f"{at}kv_a_proj_with_mqa.weight"]
    compressed = read.has(f"{at}q_a_proj.weight")
    q = hf[f"{at}q_a_proj.weight" if compressed else f"{at}q_proj.weight"]
    shard = {"sharded": rank.tp, "fused-sharded": rank.tp}.get(options.down, (1, 0))
    if options.down == "mindspeed":
        yield f"{here}linear_qkv.weight", torch.cat([q, kv])
    elif options.down.startswith("fused") and compressed:
        yield f"{here}linear_qkv_down_proj.weight", torch.cat([rows(q, shard), rows(kv, shard)])
    else:
        yield f"{here}linear_q_{'down_' if compressed else ''}proj.weight", rows(q, shard if compressed else rank.tp)
        yield f"{here}linear_kv_down_proj.weight", rows(kv, shard)
    if compressed:
        yield (
            f"{here}linear_q_up_proj.layer_norm_weight" if fused else f"{here}q_layernorm.weight",
            hf[f"{at}q_a_layernorm.weight"],
        )
        yield from split_heads(
            hf[f"{at}q_b_proj.weight"], read, options, rank, "linear_q_up_proj", "qk_nope", "qk_rope"
        )
    yield (
        f"{here}linear_kv_up_proj.layer_norm_weight" if fused else f"{here}kv_layernorm.weight",
        hf[f"{at}kv_a_layernorm.weight"],
    )
    yield from split_heads(hf[f"{at}kv_b_proj.weight"], read, options, rank, "linear_kv_up_proj", "kv_nope", "v")
    yield f"{here}linear_proj.weight", columns(hf[f"{at}o_proj.weight"], rank.tp)
    if read.has(f"{at}indexer.wk.weight"):
        yield from trained_indexer(read, options)


def split_heads(
    up: torch.Tensor, read: Reader, options: Options, rank: Rank, whole: str, first: str, second: str
) -> Named:
    """An up projection; or the two parts of its heads apart."""
    mine = rows(up, rank.tp)
    if options.up == "whole":
        yield f"self_attention.{whole}.weight", mine
        return
    nope = read.config["qk_nope_head_dim"]
    heads = mine.chunk(read.heads // rank.tp[0])
    yield f"self_attention.linear_{first}.weight", torch.cat([head[:nope] for head in heads])
    yield f"self_attention.linear_{second}.weight", torch.cat([head[nope:] for head in heads])


def trained_indexer(read: Reader, options: Options) -> Named:
    rope, heads = read.config["qk_rope_head_dim"], read.config["index_n_heads"]

    def order(rows_of_head: torch.Tensor) -> torch.Tensor:
        """Published: what turns first."""
        if options.indexer == "rope-first":
            return rows_of_head
        return torch.cat([rows_of_head[rope:], rows_of_head[:rope]])

    at, here = f"{read.attention}indexer.", "self_attention.core_attention.indexer."
    yield f"{here}linear_wq_b.weight", torch.cat([order(x) for x in read.hf[f"{at}wq_b.weight"].chunk(heads)])
    yield f"{here}linear_wk.weight", order(read.hf[f"{at}wk.weight"])
    yield f"{here}linear_weights_proj.weight", read.hf[f"{at}weights_proj.weight"]
    for kind in ("weight", "bias"):
        yield f"{here}k_norm.{kind}", order(read.hf[f"{at}k_norm.{kind}"])


def first_linear(parts: tuple[torch.Tensor | None, torch.Tensor, Any], held: tuple[int, int], block: int = 0) -> Any:
    gate, up, _ = parts
    return rows(up, held) if gate is None else in_turn(rows(gate, held), rows(up, held), block)


def trained_dense(read: Reader, options: Options, rank: Rank) -> Named:
    parts = read.gated_mlp(read.mlp)
    yield "mlp.linear_fc1.weight", first_linear(parts, rank.tp)
    yield "mlp.linear_fc2.weight", columns(parts[2], rank.tp)
    if read.has(f"{read.mlp}up_proj.bias"):
        biases = read.gated_mlp(read.mlp, "bias")
        yield "mlp.linear_fc1.bias", first_linear(biases, rank.tp)
        yield "mlp.linear_fc2.bias", biases[2]


def trained_sparse(read: Reader, options: Options, rank: Rank) -> Named:
    hf, mlp, published = read.hf, read.mlp, read.published
    yield "mlp.router.weight", hf[f"{mlp}{published.router}.weight"]
    if read.has(f"{mlp}{published.router}.bias"):
        yield "mlp.router.bias", hf[f"{mlp}{published.router}.bias"]
    if published.bias:
        yield "mlp.router.expert_bias", hf[f"{mlp}{published.bias}"]
    shared = f"{mlp}{published.shared}."
    if read.has(f"{shared}up_proj.weight"):
        parts = read.gated_mlp(shared)
        yield "mlp.shared_experts.linear_fc1.weight", first_linear(parts, rank.tp, options.shared_glu_interleave)
        yield "mlp.shared_experts.linear_fc2.weight", columns(parts[2], rank.tp)
    if read.has(f"{mlp}shared_expert_gate.weight"):
        yield "mlp.shared_experts.gate_weight", hf[f"{mlp}shared_expert_gate.weight"]
    held = range(8)[rank.ep[1] * 8 // rank.ep[0] : (rank.ep[1] + 1) * 8 // rank.ep[0]]
    for kind in ("weight", "bias") if published.experts == "alternating" else ("weight",):
        experts = [read.expert(e, kind) for e in held]
        fc1 = [first_linear(parts, rank.etp, options.glu_interleave) for parts in experts]
        fc2 = [columns(parts[2], rank.etp) if kind == "weight" else parts[2] for parts in experts]
        yield from stored(fc1, fc2, options.experts, read.hidden, kind)


def stored(fc1: list[torch.Tensor], fc2: list[torch.Tensor], storage: str, hidden: int, kind: str) -> Named:
    here = "mlp.experts."
    if storage in ("sequential", "te"):
        for j, pair in enumerate(zip(fc1, fc2, strict=True)):
            for number, tensor in enumerate(pair, 1):
                inside = f"local_experts.{j}.linear_fc{number}.{kind}"
                yield here + (inside if storage == "sequential" else f"linear_fc{number}.{kind}{j}"), tensor
        return
    one, two = torch.stack(fc1), torch.stack(fc2)
    if storage == "stacked":
        yield f"{here}linear_fc1.weight", one
        yield f"{here}linear_fc2.weight", two
        return
    across1, across2 = one.transpose(1, 2).contiguous(), two.transpose(1, 2).contiguous()
    if storage == "grouped":
        yield f"{here}weight1", across1.view(hidden, -1)
        yield f"{here}weight2", across2.view(-1, hidden)
    else:
        yield f"{here}linear_fc1.weight", across1.view(one.shape)
        yield f"{here}linear_fc2.weight", across2.view(two.shape)

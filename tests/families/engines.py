# SPDX-License-Identifier: Apache-2.0
"""What a rank of an inference engine holds of a checkpoint, by plain slicing, stacking and transposing."""

from __future__ import annotations

from typing import Any

import torch
from recipes import Named, Rank, Reader, Tensors, columns, padded, rows
from recurrent_recipes import delta_net_pieces, mamba_sections
from tiny_configs import Published
from trainers import drafts_of

Experts = list[tuple[Any, torch.Tensor, torch.Tensor]]


def kv_share(tp: tuple[int, int], groups: int) -> tuple[int, int]:
    """A rank's share of the kv heads; each is held by several ranks where there are more of those."""
    return tp if tp[0] <= groups else (groups, tp[1] * groups // tp[0])


def engine(hf: Tensors, config: dict[str, Any], published: Published, kind: str, kernel: str, rank: Rank) -> Tensors:
    """kind: "vllm" or "sglang", whose names differ; kernel: a key of `PACKED`."""
    return dict(_engine(hf, config, published, kind, kernel, rank))


def _engine(hf: Tensors, config: dict[str, Any], published: Published, kind: str, kernel: str, rank: Rank) -> Named:
    oss = config["model_type"] == "gpt_oss"
    embedding = rows(padded(hf[f"{published.trunk}.{published.embedding}.weight"], 64), rank.tp)
    head = rows(padded(hf["lm_head.weight"], 64), rank.tp) if "lm_head.weight" in hf else None
    yield f"model.{'embedding' if oss else 'embed_tokens'}.weight", embedding
    if head is not None:
        yield "lm_head.weight", head
    yield f"model.{published.final_norm}.weight", hf[f"{published.trunk}.{published.final_norm}.weight"]
    for number in range(config["num_hidden_layers"]):
        read = Reader(hf, f"{published.trunk}.layers.{number}.", config, published)
        for name, tensor in engine_layer(read, kind, kernel, rank):
            yield f"model.layers.{number}.{name}", tensor
    drafts = drafts_of(config)
    if drafts is None:
        return
    around, names, layer = drafts
    yield "draft.model.embed_tokens.weight", embedding
    behind = around == "model.layers.2."
    head_name = "model.layers.2.shared_head.head" if behind and kind == "vllm" else "lm_head"
    yield f"draft.{head_name}.weight", embedding if head is None else head
    place = {"mtp.": "draft.model.", "model.mtp_layers.0.": "draft.model.mtp_layers.2."}.get(around, f"draft.{around}")
    inner = f"{place}layers.0." if around == "mtp." else f"{place}mtp_block."
    if behind and kind == "sglang":
        place, inner = "draft.model.", "draft.model.decoder."
    for name in names:
        tensor = hf[f"{around}{name}.weight"]
        yield f"{place}{name}.weight", rows(tensor, rank.tp) if name == "fc" else tensor
    for name, tensor in engine_layer(Reader(hf, layer, config, published), kind, kernel, rank):
        yield inner + name, tensor


def engine_layer(read: Reader, kind: str, kernel: str, rank: Rank) -> Named:
    hf, published = read.hf, read.published
    for name in {*published.norms, *(published.behind or ())}:
        if read.has(f"{read.at}{name}.weight"):
            yield f"{name}.weight", hf[f"{read.at}{name}.weight"]
    if read.has(f"{read.at}linear_attn.out_proj.weight"):
        yield from engine_delta_net(read, rank)
    elif read.has(f"{read.at}mixer.in_proj.weight"):
        yield from engine_mamba(read, rank)
    elif read.has(f"{read.attention}kv_b_proj.weight"):
        yield from engine_latent(read, kind, rank)
    elif read.has(f"{read.attention}k_proj.weight"):
        yield from engine_attention(read, rank)
    if read.has(f"{read.mlp}{published.router}.weight"):
        yield from engine_sparse(read, kind, kernel, rank)
    elif read.has(f"{read.mlp}down_proj.weight"):
        for what in ("weight", "bias"):
            if not read.has(f"{read.mlp}down_proj.{what}"):
                continue
            gate, up, down = read.gated_mlp(read.mlp, what)
            first = rows(up, rank.tp) if gate is None else torch.cat([rows(gate, rank.tp), rows(up, rank.tp)])
            yield f"{published.mlp}.{'up' if gate is None else 'gate_up'}_proj.{what}", first
            yield f"{published.mlp}.down_proj.{what}", columns(down, rank.tp) if what == "weight" else down


def engine_attention(read: Reader, rank: Rank) -> Named:
    here = "attn" if read.config["model_type"] == "gpt_oss" else read.published.attention
    hf, at, kv = read.hf, read.attention, kv_share(rank.tp, read.groups)
    for kind in ("weight", "bias"):
        if read.has(f"{at}q_proj.{kind}"):
            parts = [rows(hf[f"{at}q_proj.{kind}"], rank.tp), *(rows(hf[f"{at}{x}_proj.{kind}"], kv) for x in "kv")]
            yield f"{here}.qkv_proj.{kind}", torch.cat(parts)
    for name, share in (("q_norm.weight", rank.tp), ("k_norm.weight", kv)):
        if read.has(at + name):
            norm = hf[at + name]
            yield f"{here}.{name}", rows(norm, share) if read.config["model_type"] == "minimax_m2" else norm
    for name in ("sinks", "attention_sink_bias"):
        if read.has(at + name):
            yield f"{here}.{name}", rows(hf[at + name], rank.tp)
    yield f"{here}.o_proj.weight", columns(hf[f"{at}o_proj.weight"], rank.tp)
    if read.has(f"{at}o_proj.bias"):
        yield f"{here}.o_proj.bias", hf[f"{at}o_proj.bias"]


def engine_latent(read: Reader, kind: str, rank: Rank) -> Named:
    hf, at, here, config = read.hf, read.attention, "self_attn.", read.config
    down = hf[f"{at}kv_a_proj_with_mqa.weight"]
    if read.has(f"{at}q_a_proj.weight"):
        name = "fused_qkv_a_proj" if kind == "vllm" else "fused_qkv_a_proj_with_mqa"
        yield f"{here}{name}.weight", torch.cat([hf[f"{at}q_a_proj.weight"], down])
        yield f"{here}q_a_layernorm.weight", hf[f"{at}q_a_layernorm.weight"]
        yield f"{here}q_b_proj.weight", rows(hf[f"{at}q_b_proj.weight"], rank.tp)
    else:
        yield f"{here}kv_a_proj_with_mqa.weight", down
        yield f"{here}q_proj.weight", rows(hf[f"{at}q_proj.weight"], rank.tp)
    yield f"{here}kv_a_layernorm.weight", hf[f"{at}kv_a_layernorm.weight"]
    up = rows(hf[f"{at}kv_b_proj.weight"], rank.tp)
    yield f"{here}kv_b_proj.weight", up
    nope = config["qk_nope_head_dim"]
    heads = up.reshape(read.heads // rank.tp[0], nope + config["v_head_dim"], -1)
    names = ("mla_attn.mla_attn.W_UK_T", "mla_attn.mla_attn.W_UV") if kind == "vllm" else ("w_kc", "w_vc")
    yield here + names[0], heads[:, :nope]
    yield here + names[1], heads[:, nope:].transpose(1, 2)
    yield f"{here}o_proj.weight", columns(hf[f"{at}o_proj.weight"], rank.tp)
    if read.has(f"{at}indexer.wk.weight"):
        at, here = f"{at}indexer.", f"{here}indexer."
        yield f"{here}wq_b.weight", hf[f"{at}wq_b.weight"]
        if kind == "vllm":
            both = [hf[f"{at}wk.weight"], hf[f"{at}weights_proj.weight"]]
            yield f"{here}wk_weights_proj.weight", torch.cat(both)
        else:
            yield from ((f"{here}{name}.weight", hf[f"{at}{name}.weight"]) for name in ("wk", "weights_proj"))
        yield from ((f"{here}k_norm.{x}", hf[f"{at}k_norm.{x}"]) for x in ("weight", "bias"))


def engine_delta_net(read: Reader, rank: Rank) -> Named:
    at, here, config, hf = f"{read.at}linear_attn.", "linear_attn.", read.config, read.hf
    keys, size = config["linear_num_key_heads"], config["linear_key_head_dim"]
    if read.has(f"{at}in_proj_qkvz.weight"):  # a key head's rows lie together
        for name in ("in_proj_qkvz", "in_proj_ba"):
            yield f"{here}{name}.weight", rows(hf[f"{at}{name}.weight"], rank.tp)
    else:
        pieces = [rows(part, rank.tp) for part in delta_net_pieces(read)]
        yield f"{here}in_proj_qkvz.weight", torch.cat(pieces[:4])
        yield f"{here}in_proj_ba.weight", torch.cat(pieces[4:])
    conv = hf[f"{at}conv1d.weight"]
    parts = conv.split([keys * size, keys * size, conv.shape[0] - 2 * keys * size])
    yield f"{here}conv1d.weight", torch.cat([rows(part, rank.tp) for part in parts])
    yield from ((here + name, rows(hf[at + name], rank.tp)) for name in ("A_log", "dt_bias"))
    yield f"{here}norm.weight", hf[f"{at}norm.weight"]
    yield f"{here}out_proj.weight", columns(hf[f"{at}out_proj.weight"], rank.tp)


def engine_mamba(read: Reader, rank: Rank) -> Named:
    at, hf = f"{read.at}mixer.", read.hf
    for name, conv in (("in_proj.weight", False), ("conv1d.weight", True), ("conv1d.bias", True)):
        parts = hf[at + name].split(mamba_sections(read.config, conv))
        yield f"mixer.{name}", torch.cat([rows(part, rank.tp) for part in parts])
    yield from ((f"mixer.{name}", rows(hf[at + name], rank.tp)) for name in ("D", "dt_bias", "norm.weight"))
    yield "mixer.out_proj.weight", columns(hf[f"{at}out_proj.weight"], rank.tp)


def engine_sparse(read: Reader, kind: str, kernel: str, rank: Rank) -> Named:
    hf, mlp, here, published = read.hf, read.mlp, f"{read.published.mlp}.", read.published
    for name in (f"{published.router}.weight", f"{published.router}.bias", published.bias, "shared_expert_gate.weight"):
        if name and read.has(mlp + name):
            yield here + name, hf[mlp + name]
    shared = f"{mlp}{published.shared}."
    if read.has(f"{shared}up_proj.weight"):
        gate, up, down = read.gated_mlp(shared)
        first = rows(up, rank.tp) if gate is None else torch.cat([rows(gate, rank.tp), rows(up, rank.tp)])
        yield f"{here}{published.shared}.{'up' if gate is None else 'gate_up'}_proj.weight", first
        yield f"{here}{published.shared}.down_proj.weight", columns(down, rank.tp)
    experts = f"{here}experts." + ("routed_experts." if kind == "vllm" else "")
    whole = rank.ep[0] > 1
    held = range(8)[rank.ep[1] * 8 // rank.ep[0] : (rank.ep[1] + 1) * 8 // rank.ep[0]]
    etp = (1, 0) if whole else rank.tp
    parts = [read.expert(e) for e in held]
    mine = [(None if gate is None else rows(gate, etp), rows(up, etp), columns(down, etp)) for gate, up, down in parts]
    if published.experts == "alternating":
        biases = [read.expert(e, "bias") for e in held]
        yield f"{experts}w13_weight", torch.stack([alternate(gate, up) for gate, up, _ in mine])
        yield f"{experts}w2_weight", torch.stack([down for _, _, down in mine])
        yield f"{experts}w13_bias", torch.stack([alternate(rows(g, etp), rows(u, etp)) for g, u, _ in biases])
        yield f"{experts}w2_bias", torch.stack([down for _, _, down in biases])
        return
    w13, w2 = PACKED[kernel](mine)
    yield f"{experts}w13_weight", w13
    yield f"{experts}w2_weight", w2


def alternate(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """A row of gate, a row of up, and so on."""
    return torch.stack([gate, up], dim=1).flatten(0, 1)


# --- kernels ---------------------------------------------------------------------------------------------------------


def plain(experts: Experts) -> tuple[torch.Tensor, torch.Tensor]:
    first = [up if gate is None else torch.cat([gate, up]) for gate, up, _ in experts]
    return torch.stack(first), torch.stack([down for _, _, down in experts])


def up_first(experts: Experts) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.stack([torch.cat([up, gate]) for gate, up, _ in experts]), plain(experts)[1]


def transposed(experts: Experts) -> tuple[torch.Tensor, torch.Tensor]:
    w13, w2 = plain(experts)
    return w13.transpose(1, 2), w2.transpose(1, 2)


def alternating(experts: Experts) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.stack([alternate(gate, up) for gate, up, _ in experts]), plain(experts)[1]


def fractal_of(matrix: torch.Tensor) -> torch.Tensor:
    """Tiles of 16 x 16 one column of tiles after the other, rows inside; under the matrix's shape."""
    many, across = matrix.shape[-2:]
    tiles = matrix.reshape(-1, many // 16, 16, across // 16, 16).permute(0, 3, 1, 2, 4)
    return tiles.reshape(matrix.shape)


def fractal(experts: Experts) -> tuple[torch.Tensor, torch.Tensor]:
    w13, w2 = transposed(experts)
    return fractal_of(w13), fractal_of(w2)


def fractal_rows(experts: Experts) -> tuple[torch.Tensor, torch.Tensor]:
    w13, w2 = plain(experts)
    return fractal_of(w13), fractal_of(w2)


def shuffled(experts: Experts) -> tuple[torch.Tensor, torch.Tensor]:
    """Tiles of 16 rows and 32 columns, of which 4 groups of 8 lie outside the rows."""

    def tiles(matrix: torch.Tensor) -> torch.Tensor:
        many, across = matrix.shape[-2:]
        cut = matrix.reshape(-1, many // 16, 16, across // 32, 4, 8).permute(0, 1, 3, 4, 2, 5)
        return cut.reshape(matrix.shape)

    w13, w2 = plain(experts)
    return tiles(w13), tiles(w2)


def blocks(experts: Experts) -> tuple[torch.Tensor, torch.Tensor]:
    """Widths filled to 128. fc1: of each 16 rows, the even ones before the odd, up of all eight, then gate. fc2: of
    each 32 rows, every fourth. Columns in blocks of 64."""

    def wide(matrix: torch.Tensor) -> torch.Tensor:
        return padded(matrix, 128)

    def in_blocks(matrix: torch.Tensor) -> torch.Tensor:
        return torch.cat([block.reshape(-1) for block in matrix.split(64, dim=1)]).reshape(matrix.shape)

    first, second = [], []
    for gate, up, down in experts:
        order: list[torch.Tensor] = []
        gate, up, down = wide(gate), wide(up), wide(down.T).T
        for start in range(0, gate.shape[0], 16):
            for odd in (0, 1):
                order += [half[start + odd : start + 16 : 2] for half in (up, gate)]
        first.append(in_blocks(torch.cat(order)))
        rows_of = [down[start + turn : start + 32 : 4] for start in range(0, down.shape[0], 32) for turn in range(4)]
        second.append(in_blocks(torch.cat(rows_of)))
    return torch.stack(first), torch.stack(second)


def on_a_cpu(experts: Experts) -> tuple[torch.Tensor, torch.Tensor]:
    """Widths filled to 32; tiles of 16 rows, a column of the tile after the other."""

    def tiled(matrices: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack([x.reshape(-1, 16, x.shape[1]).transpose(1, 2).reshape(x.shape) for x in matrices])

    halves = [torch.cat([padded(gate, 32), padded(up, 32)]) for gate, up, _ in experts]
    return tiled(halves), tiled([padded(down.T, 32).T for _, _, down in experts])


PACKED = {
    "plain": plain,
    "up_first": up_first,
    "transposed": transposed,
    "alternating": alternating,
    "fractal": fractal,
    "fractal_rows": fractal_rows,
    "shuffled": shuffled,
    "blocks": blocks,
    "on_a_cpu": on_a_cpu,
}

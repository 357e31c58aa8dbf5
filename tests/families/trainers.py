# SPDX-License-Identifier: Apache-2.0
"""A whole model as one rank of a trainer holds it, out of the recipes of its parts."""

from __future__ import annotations

from typing import Any

from recipes import (
    Named,
    Options,
    Rank,
    Reader,
    Tensors,
    padded,
    rows,
    trained_attention,
    trained_dense,
    trained_latent,
    trained_sparse,
)
from recurrent_recipes import trained_delta_net, trained_mamba
from tiny_configs import Published

# What checkpoints call the tensors around the layer of multi-token prediction, in the order enorm, hnorm, eh_proj,
# final norm; and where that layer stands.
DRAFTS = {
    "qwen3": ("mtp.", ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm"), "mtp.layers.0."),
    "mimo": (
        "model.mtp_layers.0.",
        ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm"),
        "model.mtp_layers.0.",
    ),
    "else": ("model.layers.2.", ("enorm", "hnorm", "eh_proj", "shared_head.norm"), "model.layers.2."),
}


def drafts_of(config: dict[str, Any]) -> tuple[str, tuple[str, ...], str] | None:
    if not config.get("num_nextn_predict_layers"):
        return None
    return DRAFTS[next((key for key in DRAFTS if config["model_type"].startswith(key)), "else")]


def trained(hf: Tensors, config: dict[str, Any], published: Published, options: Options, rank: Rank) -> Tensors:
    return dict(_trained(hf, config, published, options, rank))


def _trained(hf: Tensors, config: dict[str, Any], published: Published, options: Options, rank: Rank) -> Named:
    nemotron = config["model_type"] == "nemotron_h"
    embedding = rows(padded(hf[f"{published.trunk}.{published.embedding}.weight"], 128 * rank.tp[0]), rank.tp)
    yield "embedding.word_embeddings.weight", embedding
    if "lm_head.weight" in hf:
        yield "output_layer.weight", rows(padded(hf["lm_head.weight"], 128 * rank.tp[0]), rank.tp)
    final = "final_norm" if nemotron else "final_layernorm"
    yield f"decoder.{final}.weight", hf[f"{published.trunk}.{published.final_norm}.weight"]
    for number in range(config["num_hidden_layers"]):
        read = Reader(hf, f"{published.trunk}.layers.{number}.", config, published)
        for name, tensor in trained_layer(read, options, rank):
            yield f"decoder.layers.{number}.{name}", tensor
    drafts = drafts_of(config)
    if drafts is None:
        return
    around, names, layer = drafts
    for here, name in zip(("enorm", "hnorm", "eh_proj", "final_layernorm"), names, strict=True):
        tensor = hf[f"{around}{name}.weight"]
        if here == "eh_proj":
            if config["model_type"] == "mimo":  # published with the hidden state in front
                half = tensor.shape[1] // 2
                tensor = tensor.roll(half, dims=1)
            tensor = rows(tensor, rank.tp)
        yield f"mtp.layers.0.{here}.weight", tensor
    for name, tensor in trained_layer(Reader(hf, layer, config, published), options, rank):
        yield f"mtp.layers.0.transformer_layer.{name}", tensor


def trained_layer(read: Reader, options: Options, rank: Rank) -> Named:
    hf, at, published = read.hf, read.at, read.published
    fused = options.norms == "fused"
    first = hf.get(f"{at}{published.norms[0]}.weight")
    second = hf.get(f"{at}{published.norms[1]}.weight")
    if read.has(f"{at}linear_attn.out_proj.weight"):
        yield "self_attention.in_proj.layer_norm_weight" if fused else "input_layernorm.weight", first
        yield from trained_delta_net(read, options, rank)
    elif read.has(f"{at}mixer.in_proj.weight"):
        yield "mixer.in_proj.layer_norm_weight" if fused else "norm.weight", first
        yield from trained_mamba(read, options, rank)
    elif read.has(f"{read.attention}kv_b_proj.weight"):
        yield "input_layernorm.weight", first
        yield from trained_latent(read, options, rank)
    elif read.has(f"{read.attention}k_proj.weight"):
        yield "self_attention.linear_qkv.layer_norm_weight" if fused else "input_layernorm.weight", first
        yield from trained_attention(read, options, rank)
    if read.has(f"{read.mlp}{published.router}.weight"):
        yield "pre_mlp_layernorm.weight", second
        yield from trained_sparse(read, options, rank)
    elif read.has(f"{read.mlp}down_proj.weight"):
        yield "mlp.linear_fc1.layer_norm_weight" if fused else "pre_mlp_layernorm.weight", second
        yield from trained_dense(read, options, rank)
    if published.behind:
        here = ("post_self_attn_layernorm", "post_mlp_layernorm")
        if read.config["model_type"] == "gemma3_text":
            here = ("self_attention.linear_proj.post_layernorm", "mlp.linear_fc2.post_layernorm")
        for mine, theirs in zip(here, published.behind, strict=True):
            yield f"{mine}.weight", hf[f"{at}{theirs}.weight"]

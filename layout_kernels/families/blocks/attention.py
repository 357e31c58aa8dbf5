# SPDX-License-Identifier: Apache-2.0
"""Rows of grouped-query attention, with the norm in front of it and, in some families, one behind it."""

from __future__ import annotations

from ..table import block, row

INPUT_NORM = row(
    "layers.input_norm.weight",
    megatron="input_layernorm.weight = h",
    fused_norm="self_attention.linear_qkv.layer_norm_weight = h",
    elsewhere="{input_norm}.weight = h",
)

OUT = (
    row(
        "layers.{attention}.out.weight",
        when="not own_value",
        megatron="self_attention.linear_proj.weight = h (g r d)/tp",
        hf="{attn}.o_proj.weight = h (g r d)",
        vllm="{engine_attn}.o_proj.weight = h ((g r)/tp d)",
    ),
    row(
        "layers.{attention}.out.weight",
        when="own_value",
        megatron="self_attention.linear_proj.weight = h (g r dv)/tp",
        hf="{attn}.o_proj.weight = h (g r dv)",
        vllm="{engine_attn}.o_proj.weight = h ((g r)/tp dv)",
    ),
    row(
        "layers.{attention}.out.bias",
        when="out_bias",
        megatron="self_attention.linear_proj.bias = h",
        hf="{attn}.o_proj.bias = h",
        vllm="{engine_attn}.o_proj.bias = h",
    ),
)

PLAIN_PROJECTION = (
    row(
        "layers.attention.qkv.weight",
        when="not output_gate and not own_value",
        megatron="self_attention.linear_qkv.weight = (g [q:r k v] d)/tp h",
        hf="""
            {attn}.q_proj.weight = (g [q:r] d) h
            {attn}.k_proj.weight = (g [k] d) h
            {attn}.v_proj.weight = (g [v] d) h
        """,
        vllm="{engine_attn}.qkv_proj.weight = ([q:(g r)/tp k:g/kv v:g/kv] d) h",
    ),
    row(
        "layers.attention.qkv.bias",
        when="qkv_bias and not output_gate and not own_value",
        megatron="self_attention.linear_qkv.bias = (g [q:r k v] d)/tp",
        hf="""
            {attn}.q_proj.bias = (g [q:r] d)
            {attn}.k_proj.bias = (g [k] d)
            {attn}.v_proj.bias = (g [v] d)
        """,
        vllm="{engine_attn}.qkv_proj.bias = ([q:(g r)/tp k:g/kv v:g/kv] d)",
    ),
)

# A gate for each query head, behind q in the checkpoint; in Megatron-Core behind all q of a group.
GATED_PROJECTION = (
    row(
        "layers.attention.qkv.weight",
        when="output_gate",
        megatron="self_attention.linear_qkv.weight = (g [q:r gate:r k v] d)/tp h",
        hf="""
            {attn}.q_proj.weight = (g r [q gate] d) h
            {attn}.k_proj.weight = (g [k] d) h
            {attn}.v_proj.weight = (g [v] d) h
        """,
        vllm="{engine_attn}.qkv_proj.weight = [_:((g r)/tp [q gate] d) _:([k] g/kv d) _:([v] g/kv d)] h",
    ),
    row(
        "layers.attention.qkv.bias",
        when="output_gate and qkv_bias",
        megatron="self_attention.linear_qkv.bias = (g [q:r gate:r k v] d)/tp",
        hf="""
            {attn}.q_proj.bias = (g r [q gate] d)
            {attn}.k_proj.bias = (g [k] d)
            {attn}.v_proj.bias = (g [v] d)
        """,
        vllm="{engine_attn}.qkv_proj.bias = [_:((g r)/tp [q gate] d) _:([k] g/kv d) _:([v] g/kv d)]",
    ),
)

# Heads of v that are narrower than those of q and k. Layers of another kind may have another number of heads, and an
# axis has one size in one logical tensor: the name says the kind.
ASYMMETRIC_PROJECTION = (
    row(
        "layers.{attention}.qkv.weight",
        when="own_value",
        megatron="self_attention.linear_qkv.weight = (g [q:(r d) k:d v:dv])/tp h",
        hf="""
            {attn}.q_proj.weight = (g [q:r] d) h
            {attn}.k_proj.weight = (g [k] d) h
            {attn}.v_proj.weight = (g [v] dv) h
        """,
        vllm="{engine_attn}.qkv_proj.weight = [q:((g r)/tp d) k:(g/kv d) v:(g/kv dv)] h",
    ),
)

HEAD_NORMS = (
    row(
        "layers.attention.q_norm.weight",
        when="qk_norm and not full_qk_norm",
        megatron="self_attention.q_layernorm.weight = d",
        hf="{attn}.q_norm.weight = d",
        vllm="{engine_attn}.q_norm.weight = d",
    ),
    row(
        "layers.attention.k_norm.weight",
        when="qk_norm and not full_qk_norm",
        megatron="self_attention.k_layernorm.weight = d",
        hf="{attn}.k_norm.weight = d",
        vllm="{engine_attn}.k_norm.weight = d",
    ),
    row(  # one norm over all heads
        "layers.attention.q_norm.weight",
        when="full_qk_norm",
        megatron="self_attention.q_layernorm.weight = (g r d)/tp",
        hf="{attn}.q_norm.weight = (g r d)",
        vllm="{engine_attn}.q_norm.weight = (g r d)/tp",
    ),
    row(
        "layers.attention.k_norm.weight",
        when="full_qk_norm",
        megatron="self_attention.k_layernorm.weight = (g d)/kv",
        hf="{attn}.k_norm.weight = (g d)",
        vllm="{engine_attn}.k_norm.weight = (g d)/kv",
    ),
)

SINKS = row(
    "layers.{attention}.sinks",
    when="sinks",
    megatron="self_attention.core_attention.softmax_offset = (g r)/tp",
    hf="{attn}.{sinks_name} = (g r)",
    transformers="{attn}.sinks = (g r)",
    vllm="{engine_attn}.{sinks_name} = (g r)/tp",
)

GROUPED_QUERY_ATTENTION = block(
    "grouped-query attention",
    INPUT_NORM,
    *PLAIN_PROJECTION,
    *GATED_PROJECTION,
    *ASYMMETRIC_PROJECTION,
    *HEAD_NORMS,
    SINKS,
    *OUT,
    where="attends",
    sizes={"h": "hidden", "g": "kv_heads", "r": "heads / kv_heads", "d": "head", "dv": "value"},
)

POST_NORMS = block(
    "norms behind attention and MLP",
    row(
        "layers.attention_post_norm.weight",
        megatron="{trained_attention_post_norm}.weight = h",
        elsewhere="{attention_post_norm}.weight = h",
    ),
    row(
        "layers.mlp_post_norm.weight",
        megatron="{trained_mlp_post_norm}.weight = h",
        elsewhere="{mlp_post_norm}.weight = h",
    ),
    sizes={"h": "hidden"},
)

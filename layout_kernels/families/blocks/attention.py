# SPDX-License-Identifier: Apache-2.0
"""Rows of attention, with the norm in front of it."""

from __future__ import annotations

from ..table import block, row

GROUPED_QUERY_ATTENTION = block(
    "grouped-query attention",
    row(
        "layers.input_norm.weight",
        megatron="input_layernorm.weight = h",
        fused_norm="self_attention.linear_qkv.layer_norm_weight = h",
        elsewhere="input_layernorm.weight = h",
    ),
    row(
        "layers.attention.qkv.weight",
        megatron="self_attention.linear_qkv.weight = (g [q:r k v] d)/tp h",
        hf="""
            self_attn.q_proj.weight = (g [q:r] d) h
            self_attn.k_proj.weight = (g [k] d) h
            self_attn.v_proj.weight = (g [v] d) h
        """,
        vllm="self_attn.qkv_proj.weight = ([q:(g r)/tp k:g/kv v:g/kv] d) h",
    ),
    row(
        "layers.attention.qkv.bias",
        when="qkv_bias",
        megatron="self_attention.linear_qkv.bias = (g [q:r k v] d)/tp",
        hf="""
            self_attn.q_proj.bias = (g [q:r] d)
            self_attn.k_proj.bias = (g [k] d)
            self_attn.v_proj.bias = (g [v] d)
        """,
        vllm="self_attn.qkv_proj.bias = ([q:(g r)/tp k:g/kv v:g/kv] d)",
    ),
    row(
        "layers.attention.q_norm.weight",
        when="qk_norm",
        megatron="self_attention.q_layernorm.weight = d",
        elsewhere="self_attn.q_norm.weight = d",
    ),
    row(
        "layers.attention.k_norm.weight",
        when="qk_norm",
        megatron="self_attention.k_layernorm.weight = d",
        elsewhere="self_attn.k_norm.weight = d",
    ),
    row(
        "layers.attention.out.weight",
        megatron="self_attention.linear_proj.weight = h (g r d)/tp",
        hf="self_attn.o_proj.weight = h (g r d)",
        vllm="self_attn.o_proj.weight = h ((g r)/tp d)",
    ),
    row(
        "layers.attention.out.bias",
        when="out_bias",
        megatron="self_attention.linear_proj.bias = h",
        elsewhere="self_attn.o_proj.bias = h",
    ),
    sizes={"h": "hidden", "g": "kv_heads", "r": "heads / kv_heads", "d": "head"},
)


LATENT_ATTENTION = block(
    "multi-head latent attention",
    row(
        "layers.input_norm.weight",
        megatron="input_layernorm.weight = h",
        elsewhere="input_layernorm.weight = h",
    ),
    row(
        "layers.attention.q.weight",
        when="not q_rank",
        megatron="self_attention.linear_q_proj.weight = (n/tp [nope:dn rope:dr]) h",
        hf="self_attn.q_proj.weight = (n [nope:dn rope:dr]) h",
        vllm="self_attn.q_proj.weight = (n/tp [nope:dn rope:dr]) h",
    ),
    row(  # the widest fusion: q_a and kv_a in one tensor
        "layers.attention.qkv_down.weight",
        when="q_rank",
        megatron="""
            self_attention.linear_q_down_proj.weight = [q_a:lq]/tp h
            self_attention.linear_kv_down_proj.weight = [kv_a:[lat:c rope:dr]]/tp h
        """,
        replicated_down="""
            self_attention.linear_q_down_proj.weight = [q_a:lq] h
            self_attention.linear_kv_down_proj.weight = [kv_a:[lat:c rope:dr]] h
        """,
        hf="""
            self_attn.q_a_proj.weight = [q_a:lq] h
            self_attn.kv_a_proj_with_mqa.weight = [kv_a:[lat:c rope:dr]] h
        """,
        vllm="self_attn.fused_qkv_a_proj.weight = [q_a:lq kv_a:[lat:c rope:dr]] h",
    ),
    row(
        "layers.attention.qkv_down.weight",
        when="not q_rank",
        megatron="self_attention.linear_kv_down_proj.weight = [kv_a:[lat:c rope:dr]]/tp h",
        replicated_down="self_attention.linear_kv_down_proj.weight = [kv_a:[lat:c rope:dr]] h",
        elsewhere="self_attn.kv_a_proj_with_mqa.weight = [kv_a:[lat:c rope:dr]] h",
    ),
    row(
        "layers.attention.q_latent_norm.weight",
        when="q_rank and qk_norm",
        megatron="self_attention.q_layernorm.weight = lq",
        fused_norm="self_attention.linear_q_up_proj.layer_norm_weight = lq",
        elsewhere="self_attn.q_a_layernorm.weight = lq",
    ),
    row(
        "layers.attention.q_up.weight",
        when="q_rank",
        megatron="self_attention.linear_q_up_proj.weight = (n/tp [nope:dn rope:dr]) lq",
        hf="self_attn.q_b_proj.weight = (n [nope:dn rope:dr]) lq",
        vllm="self_attn.q_b_proj.weight = (n/tp [nope:dn rope:dr]) lq",
    ),
    row(
        "layers.attention.kv_latent_norm.weight",
        when="qk_norm",
        megatron="self_attention.kv_layernorm.weight = c",
        fused_norm="self_attention.linear_kv_up_proj.layer_norm_weight = c",
        elsewhere="self_attn.kv_a_layernorm.weight = c",
    ),
    row(
        "layers.attention.kv_up.weight",
        megatron="self_attention.linear_kv_up_proj.weight = (n/tp [knope:dn val:dv]) c",
        hf="self_attn.kv_b_proj.weight = (n [knope:dn val:dv]) c",
        vllm="""
            self_attn.kv_b_proj.weight = (n/tp [knope:dn val:dv]) c
            self_attn.mla_attn.mla_attn.W_UK_T = n/tp [knope:dn] c
            self_attn.mla_attn.mla_attn.W_UV = n/tp c [val:dv]
        """,
    ),
    row(
        "layers.attention.out.weight",
        megatron="self_attention.linear_proj.weight = h (n dv)/tp",
        hf="self_attn.o_proj.weight = h (n dv)",
        vllm="self_attn.o_proj.weight = h (n/tp dv)",
    ),
    sizes={"h": "hidden", "n": "heads", "lq": "q_rank", "c": "kv_rank", "dn": "nope", "dr": "rope", "dv": "value"},
)

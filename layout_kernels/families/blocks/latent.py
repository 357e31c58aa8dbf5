# SPDX-License-Identifier: Apache-2.0
"""Rows of multi-head latent attention, with the norm in front of it, and of the indexer of sparse attention."""

from __future__ import annotations

from ..table import block, row

LATENT_ATTENTION = block(
    "multi-head latent attention",
    row(
        "layers.input_norm.weight",
        megatron="input_layernorm.weight = h",
        elsewhere="input_layernorm.weight = h",
    ),
    row(  # the widest fusion: what q and kv begin with, in one tensor
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
        fused_down="self_attention.linear_qkv_down_proj.weight = [q_a:lq/tp kv_a:[lat:c rope:dr]/tp] h",
        fused_replicated_down=("self_attention.linear_qkv_down_proj.weight = [q_a:lq kv_a:[lat:c rope:dr]] h"),
        mindspeed_down="self_attention.linear_qkv.weight = [q_a:lq kv_a:[lat:c rope:dr]] h",
        hf="""
            self_attn.q_a_proj.weight = [q_a:lq] h
            self_attn.kv_a_proj_with_mqa.weight = [kv_a:[lat:c rope:dr]] h
        """,
        vllm="self_attn.fused_qkv_a_proj.weight = [q_a:lq kv_a:[lat:c rope:dr]] h",
        sglang="self_attn.fused_qkv_a_proj_with_mqa.weight = [q_a:lq kv_a:[lat:c rope:dr]] h",
    ),
    row(  # q is not compressed
        "layers.attention.qkv_down.weight",
        when="not q_rank",
        megatron="""
            self_attention.linear_q_proj.weight = [q:(n/tp [nope:dn rope:dr])] h
            self_attention.linear_kv_down_proj.weight = [kv_a:[lat:c rope:dr]]/tp h
        """,
        replicated_down="""
            self_attention.linear_q_proj.weight = [q:(n/tp [nope:dn rope:dr])] h
            self_attention.linear_kv_down_proj.weight = [kv_a:[lat:c rope:dr]] h
        """,
        mindspeed_down="self_attention.linear_qkv.weight = [q:(n [nope:dn rope:dr]) kv_a:[lat:c rope:dr]] h",
        hf="""
            self_attn.q_proj.weight = [q:(n [nope:dn rope:dr])] h
            self_attn.kv_a_proj_with_mqa.weight = [kv_a:[lat:c rope:dr]] h
        """,
        vllm="""
            self_attn.q_proj.weight = [q:(n/tp [nope:dn rope:dr])] h
            self_attn.kv_a_proj_with_mqa.weight = [kv_a:[lat:c rope:dr]] h
        """,
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
        split_up="""
            self_attention.linear_qk_nope.weight = (n/tp [nope:dn]) lq
            self_attention.linear_qk_rope.weight = (n/tp [rope:dr]) lq
        """,
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
        split_up="""
            self_attention.linear_kv_nope.weight = (n/tp [knope:dn]) c
            self_attention.linear_v.weight = (n/tp [val:dv]) c
        """,
        hf="self_attn.kv_b_proj.weight = (n [knope:dn val:dv]) c",
        vllm="""
            self_attn.kv_b_proj.weight = (n/tp [knope:dn val:dv]) c
            self_attn.mla_attn.mla_attn.W_UK_T = n/tp [knope:dn] c
            self_attn.mla_attn.mla_attn.W_UV = n/tp c [val:dv]
        """,
        sglang="""
            self_attn.kv_b_proj.weight = (n/tp [knope:dn val:dv]) c
            self_attn.w_kc = n/tp [knope:dn] c
            self_attn.w_vc = n/tp c [val:dv]
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


# Which half of a head turns with the position differs between versions of Megatron-Core: 0.16 splits nope first, later
# ones rope first, as checkpoints do. With 64 and 64 rows the shape shows nothing.
INDEXER = block(
    "indexer of sparse attention",
    row(
        "layers.indexer.q_up.weight",
        megatron="self_attention.core_attention.indexer.linear_wq_b.weight = (ni [nope:dx rope:dr]) lq",
        rope_first="self_attention.core_attention.indexer.linear_wq_b.weight = (ni [rope:dr nope:dx]) lq",
        elsewhere="self_attn.indexer.wq_b.weight = (ni [rope:dr nope:dx]) lq",
    ),
    row(
        "layers.indexer.k_and_weights.weight",
        megatron="""
            self_attention.core_attention.indexer.linear_wk.weight = [wk:[nope:dx rope:dr]] h
            self_attention.core_attention.indexer.linear_weights_proj.weight = [wp:ni] h
        """,
        rope_first="""
            self_attention.core_attention.indexer.linear_wk.weight = [wk:[rope:dr nope:dx]] h
            self_attention.core_attention.indexer.linear_weights_proj.weight = [wp:ni] h
        """,
        hf="""
            self_attn.indexer.wk.weight = [wk:[rope:dr nope:dx]] h
            self_attn.indexer.weights_proj.weight = [wp:ni] h
        """,
        vllm="self_attn.indexer.wk_weights_proj.weight = [wk:[rope:dr nope:dx] wp:ni] h",
        sglang="""
            self_attn.indexer.wk.weight = [wk:[rope:dr nope:dx]] h
            self_attn.indexer.weights_proj.weight = [wp:ni] h
        """,
    ),
    *(
        row(
            f"layers.indexer.k_norm.{kind}",
            megatron=f"self_attention.core_attention.indexer.k_norm.{kind} = [nope:dx rope:dr]",
            rope_first=f"self_attention.core_attention.indexer.k_norm.{kind} = [rope:dr nope:dx]",
            hf=f"self_attn.indexer.k_norm.{kind} = [rope:dr nope:dx]",
            vllm=f"self_attn.indexer.k_norm.{kind} = [rope:dr nope:dx] in float32",
            sglang=f"self_attn.indexer.k_norm.{kind} = [rope:dr nope:dx] in float32",
        )
        for kind in ("weight", "bias")
    ),
    where="indexed",
    sizes={"h": "hidden", "lq": "q_rank", "ni": "index_heads", "dr": "rope", "dx": "index_head - rope"},
)

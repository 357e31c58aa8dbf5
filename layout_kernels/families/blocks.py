# SPDX-License-Identifier: Apache-2.0
"""The layouts of all models, as one table: a row a logical tensor, a column a system.

Columns are looked up along a path that `systems.py` gives; the first that a row has counts:

====================== ===============================================================================================
column                 what it describes
====================== ===============================================================================================
``megatron``           Megatron-Core 0.16 and MindSpeed, modules of the local spec
``fused_norm``         there, a norm fused into the linear behind it (Transformer Engine)
``replicated_down``    there, MLA down projections that every tensor-parallel rank holds whole (Transformer Engine)
``sequential``         there, routed experts as one module each
``te``                 there, one grouped linear with a tensor an expert (Transformer Engine)
``grouped``            there, the 2-D ``weight1``, ``weight2``; the shape does not describe the bytes (MindSpeed too)
``stacked``            there, one 3-D tensor whose bytes follow its shape
``stacked_transposed`` there, MindSpeed's 3-D tensor (performance mode), whose bytes are those of ``grouped``
``hf``                 published checkpoints, a tensor an expert
``transformers``       live modules of transformers 5
``vllm``               vLLM 0.32 on CUDA, default kernels
``vllm_ascend``        vLLM-Ascend, ND format, where it differs from ``vllm``
``vllm_cpu``           vLLM on a CPU without AMX, where it differs from ``vllm``
``elsewhere``          every system that has no column of its own in the row
====================== ===============================================================================================

One spelling of axes everywhere: ``h`` hidden, ``i`` width of an MLP or expert, ``e`` experts, ``l`` layers, ``v``
vocabulary, ``p`` its padding, ``g`` kv heads, ``r`` query heads a kv head, ``d`` size of a head, ``n`` heads of MLA,
``lq`` and ``c`` its ranks, ``dn``, ``dr``, ``dv`` its head sizes, ``o`` the rows of ``eh_proj``. Tensors whose logical
name begins with ``layers.`` or ``mtp.`` stand at a layer ``l``; layers of multi-token prediction are numbered on behind
the others, as checkpoints do.
"""

from __future__ import annotations

from .table import block, row

VOCABULARY = {"h": "hidden", "v": "vocab", "p": "up(vocab, vocab_unit) - vocab"}

EMBEDDING = block(
    "embedding, final norm, head",
    row(
        "embedding.weight",
        megatron="embedding.word_embeddings.weight = [token:v pad:p]/tp h if first or drafts > 0",
        hf="model.embed_tokens.weight = [token:v] h if first",
        vllm="model.embed_tokens.weight = [token:v pad:p]/tp h if first or tied and last",
    ),
    row(  # a tied head: Megatron-Core's last stage holds a copy, transformers a second name
        "embedding.weight",
        when="tied",
        megatron="output_layer.weight = [token:v pad:p]/tp h if last and not first",
        hf="",
        transformers="lm_head.weight = [token:v] h if last",
        vllm="",
    ),
    row(
        "output.weight",
        when="not tied",
        megatron="output_layer.weight = [token:v pad:p]/tp h if last",
        hf="lm_head.weight = [token:v] h if last",
        vllm="lm_head.weight = [token:v pad:p]/tp h if last",
    ),
    row(
        "final_norm.weight",
        megatron="decoder.final_layernorm.weight = h if last",
        elsewhere="model.norm.weight = h if last",
    ),
    sizes=VOCABULARY,
)

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

DENSE_MLP = block(
    "dense MLP",
    row(
        "layers.mlp_norm.weight",
        megatron="pre_mlp_layernorm.weight = h",
        fused_norm="mlp.linear_fc1.layer_norm_weight = h",
        elsewhere="post_attention_layernorm.weight = h",
    ),
    row(
        "layers.mlp.fc1.weight",
        megatron="mlp.linear_fc1.weight = ([gate up] i/tp) h",
        hf="""
            mlp.gate_proj.weight = ([gate] i) h
            mlp.up_proj.weight = ([up] i) h
        """,
        vllm="mlp.gate_up_proj.weight = ([gate up] i/tp) h",
    ),
    row(
        "layers.mlp.fc2.weight",
        megatron="mlp.linear_fc2.weight = h i/tp",
        hf="mlp.down_proj.weight = h i",
        vllm="mlp.down_proj.weight = h i/tp",
    ),
    where="not sparse",
    sizes={"h": "hidden", "i": "width"},
)

ROUTED_EXPERTS = block(
    "router and routed experts",
    row(
        "layers.mlp_norm.weight",
        megatron="pre_mlp_layernorm.weight = h",
        elsewhere="post_attention_layernorm.weight = h",
    ),
    row(
        "layers.router.weight",
        when="not float32_router",
        megatron="mlp.router.weight = e h",
        elsewhere="mlp.gate.weight = e h",
    ),
    row(
        "layers.router.weight",
        when="float32_router",
        megatron="mlp.router.weight = e h",
        hf="mlp.gate.weight = e h",
        transformers="mlp.gate.weight = e h in float32",
        vllm="mlp.gate.weight = e h in float32",
    ),
    row(
        "layers.router.expert_bias",
        when="expert_bias",
        megatron="mlp.router.expert_bias = e in float32",
        elsewhere="mlp.gate.e_score_correction_bias = e in float32",
    ),
    row(
        "layers.experts.fc1.weight",
        sequential="mlp.experts.local_experts.{j}.linear_fc1.weight = ([gate up] i/etp) h",
        te="mlp.experts.linear_fc1.weight{j} = ([gate up] i/etp) h",
        grouped="mlp.experts.weight1 = e/ep h ([gate up] i/etp) as h (e/ep [gate up] i/etp)",
        stacked="mlp.experts.linear_fc1.weight = e/ep ([gate up] i/etp) h",
        stacked_transposed="mlp.experts.linear_fc1.weight = e/ep h ([gate up] i/etp) as e/ep ([gate up] i/etp) h",
        hf="""
            mlp.experts.{e}.gate_proj.weight = ([gate] i) h
            mlp.experts.{e}.up_proj.weight = ([up] i) h
        """,
        transformers="mlp.experts.gate_up_proj = e ([gate up] i) h",
        vllm="mlp.experts.routed_experts.w13_weight = e/ep ([gate up] i/etp) h",
        vllm_ascend="mlp.experts.routed_experts.w13_weight = e/ep h ([gate up] i/etp)",
        vllm_cpu=(
            "mlp.experts.routed_experts.w13_weight = e/ep ([gate up] t/etp i1) h i0 as e/ep ([gate up] t/etp i1 i0) h"
        ),
    ),
    row(
        "layers.experts.fc2.weight",
        sequential="mlp.experts.local_experts.{j}.linear_fc2.weight = h i/etp",
        te="mlp.experts.linear_fc2.weight{j} = h i/etp",
        grouped="mlp.experts.weight2 = e/ep i/etp h as (e/ep i/etp) h",
        stacked="mlp.experts.linear_fc2.weight = e/ep h i/etp",
        stacked_transposed="mlp.experts.linear_fc2.weight = e/ep i/etp h as e/ep h i/etp",
        hf="mlp.experts.{e}.down_proj.weight = h i",
        transformers="mlp.experts.down_proj = e h i",
        vllm="mlp.experts.routed_experts.w2_weight = e/ep h i/etp",
        vllm_ascend="mlp.experts.routed_experts.w2_weight = e/ep i/etp h",
        vllm_cpu="mlp.experts.routed_experts.w2_weight = e/ep h1 t/etp i1 i0 h0 as e/ep (h1 h0) (t/etp i1 i0)",
    ),
    where="sparse",
    sizes={"h": "hidden", "e": "experts", "i": "expert_width"},
    # Tiles of 16; the width of each rank is filled to a multiple of 32.
    cuts={
        "vllm_cpu": {
            "i": "(t il)",
            "t": "etp",
            "il": "expert_width / etp of (i1 i0)",
            "i1": "up(expert_width / etp, 32) / 16",
            "i0": "16",
            "h": "(h1 h0)",
            "h1": "hidden / 16",
            "h0": "16",
        }
    },
)

SHARED_EXPERT = block(
    "shared expert",
    row(
        "layers.shared_expert.fc1.weight",
        megatron="mlp.shared_experts.linear_fc1.weight = ([gate up] i/tp) h",
        hf="""
            mlp.shared_experts.gate_proj.weight = ([gate] i) h
            mlp.shared_experts.up_proj.weight = ([up] i) h
        """,
        vllm="mlp.shared_experts.gate_up_proj.weight = ([gate up] i/tp) h",
    ),
    row(
        "layers.shared_expert.fc2.weight",
        megatron="mlp.shared_experts.linear_fc2.weight = h i/tp",
        hf="mlp.shared_experts.down_proj.weight = h i",
        vllm="mlp.shared_experts.down_proj.weight = h i/tp",
    ),
    where="sparse and shared_width",
    sizes={"h": "hidden", "i": "shared_width"},
)

MULTI_TOKEN_PREDICTION = block(
    "multi-token prediction",
    row("mtp.embed_norm.weight", megatron="enorm.weight = h", elsewhere="enorm.weight = h"),
    row("mtp.hidden_norm.weight", megatron="hnorm.weight = h", elsewhere="hnorm.weight = h"),
    row(
        "mtp.eh_proj.weight",
        megatron="eh_proj.weight = o/tp [embed:h hidden:h]",
        elsewhere="eh_proj.weight = o [embed:h hidden:h]",
    ),
    row(
        "mtp.final_norm.weight",
        megatron="final_layernorm.weight = h",
        elsewhere="shared_head.norm.weight = h",
    ),
    row(  # copies of the model's own embedding and head
        "embedding.weight",
        when="copies",
        megatron="",
        hf="embed_tokens.weight = [token:v] h",
        vllm="/draft.model.embed_tokens.weight = [token:v pad:p]/tp h if n == 0",
    ),
    row(
        "output.weight",
        when="copies and not tied",
        megatron="",
        hf="shared_head.head.weight = [token:v] h",
        vllm="shared_head.head.weight = [token:v pad:p]/tp h",
    ),
    row(
        "embedding.weight",
        when="copies and tied",
        megatron="",
        hf="shared_head.head.weight = [token:v] h",
        vllm="shared_head.head.weight = [token:v pad:p]/tp h",
    ),
    sizes={**VOCABULARY, "o": "hidden"},
)

# SPDX-License-Identifier: Apache-2.0
"""Rows of dense MLPs, routed and shared experts, with the norm in front of them."""

from __future__ import annotations

from ..table import block, row

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

# SPDX-License-Identifier: Apache-2.0
"""Rows of dense MLPs and shared experts, with the norm in front of them."""

from __future__ import annotations

from ..table import block, row

DENSE_MLP = block(
    "dense MLP",
    row(
        "layers.mlp_norm.weight",
        megatron="pre_mlp_layernorm.weight = h",
        fused_norm="mlp.linear_fc1.layer_norm_weight = h",
        elsewhere="{mlp_norm}.weight = h",
    ),
    row(
        "layers.mlp.fc1.weight",
        when="gated and not published_fused",
        megatron="mlp.linear_fc1.weight = ([gate up] i/tp) h",
        hf="""
            {mlp}.gate_proj.weight = ([gate] i) h
            {mlp}.up_proj.weight = ([up] i) h
        """,
        vllm="{mlp}.gate_up_proj.weight = ([gate up] i/tp) h",
    ),
    row(
        "layers.mlp.fc1.weight",
        when="gated and published_fused",
        megatron="mlp.linear_fc1.weight = ([gate up] i/tp) h",
        hf="{mlp}.gate_up_proj.weight = ([gate up] i) h",
        vllm="{mlp}.gate_up_proj.weight = ([gate up] i/tp) h",
    ),
    row(
        "layers.mlp.fc1.weight",
        when="not gated",
        megatron="mlp.linear_fc1.weight = i/tp h",
        hf="{mlp}.up_proj.weight = i h",
        vllm="{mlp}.up_proj.weight = i/tp h",
    ),
    row(
        "layers.mlp.fc1.bias",
        when="mlp_bias",
        megatron="mlp.linear_fc1.bias = ([gate up] i/tp)",
        hf="""
            {mlp}.gate_proj.bias = ([gate] i)
            {mlp}.up_proj.bias = ([up] i)
        """,
        vllm="{mlp}.gate_up_proj.bias = ([gate up] i/tp)",
    ),
    row(
        "layers.mlp.fc2.weight",
        megatron="mlp.linear_fc2.weight = h i/tp",
        hf="{mlp}.down_proj.weight = h i",
        vllm="{mlp}.down_proj.weight = h i/tp",
    ),
    row(
        "layers.mlp.fc2.bias",
        when="mlp_bias",
        megatron="mlp.linear_fc2.bias = h",
        elsewhere="{mlp}.down_proj.bias = h",
    ),
    where="dense",
    sizes={"h": "hidden", "i": "width"},
)


SHARED_EXPERT = block(
    "shared expert",
    row(
        "layers.shared_expert.fc1.weight",
        when="gated",
        megatron="mlp.shared_experts.linear_fc1.weight = ([gate up] i/tp) h",
        shared_interleaved="mlp.shared_experts.linear_fc1.weight = (ib/tp [gate up] is) h",
        hf="""
            {mlp}.{shared}.gate_proj.weight = ([gate] i) h
            {mlp}.{shared}.up_proj.weight = ([up] i) h
        """,
        vllm="{mlp}.{shared}.gate_up_proj.weight = ([gate up] i/tp) h",
    ),
    row(
        "layers.shared_expert.fc1.weight",
        when="not gated",
        megatron="mlp.shared_experts.linear_fc1.weight = i/tp h",
        hf="{mlp}.{shared}.up_proj.weight = i h",
        vllm="{mlp}.{shared}.up_proj.weight = i/tp h",
    ),
    row(
        "layers.shared_expert.fc2.weight",
        megatron="mlp.shared_experts.linear_fc2.weight = h i/tp",
        hf="{mlp}.{shared}.down_proj.weight = h i",
        vllm="{mlp}.{shared}.down_proj.weight = h i/tp",
    ),
    row(
        "layers.shared_expert.gate.weight",
        when="shared_gate",
        megatron="mlp.shared_experts.gate_weight = 1 h",
        elsewhere="{mlp}.shared_expert_gate.weight = 1 h",
    ),
    where="sparse and shared_width",
    sizes={"h": "hidden", "i": "shared_width"},
    cuts={
        "shared_interleaved": {
            "i": "(ib is)",
            "ib": "shared_width / shared_glu_interleave",
            "is": "shared_glu_interleave",
        }
    },
)

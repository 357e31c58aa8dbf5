# SPDX-License-Identifier: Apache-2.0
"""Rows of layers with a recurrent state instead of attention: GatedDeltaNet and Mamba 2, with the norm in front.

Where a system keeps a number changed by arithmetic, its tag says so (`less_one`, `minus_exp`): it is no copy of what a
checkpoint holds, and a plan between the two is refused by name.
"""

from __future__ import annotations

from ..table import block, row

GATED_DELTA_NET = block(
    "gated delta net",
    row(
        "layers.input_norm.weight",
        megatron="input_layernorm.weight = h",
        fused_norm="self_attention.in_proj.layer_norm_weight = h",
        elsewhere="input_layernorm.weight = h",
    ),
    row(  # published in one piece a key head
        "layers.delta_net.in.weight",
        when="by_key_head",
        megatron=(
            "self_attention.in_proj.weight = [q:(nk/tp dk) k:(nk/tp dk) v:(nv/tp dv) z:(nv/tp dv) b:nv/tp a:nv/tp] h"
        ),
        hf="""
            linear_attn.in_proj_qkvz.weight = (nk [q:dk k:dk v:(nr dv) z:(nr dv)]) h
            linear_attn.in_proj_ba.weight = (nk [b:nr a:nr]) h
        """,
        vllm="""
            linear_attn.in_proj_qkvz.weight = (nk/tp [q:dk k:dk v:(nr dv) z:(nr dv)]) h
            linear_attn.in_proj_ba.weight = (nk/tp [b:nr a:nr]) h
        """,
    ),
    row(  # published flat
        "layers.delta_net.in.weight",
        when="not by_key_head",
        megatron=(
            "self_attention.in_proj.weight = [q:(nk/tp dk) k:(nk/tp dk) v:(nv/tp dv) z:(nv/tp dv) b:nv/tp a:nv/tp] h"
        ),
        hf="""
            linear_attn.in_proj_qkv.weight = [q:(nk dk) k:(nk dk) v:(nv dv)] h
            linear_attn.in_proj_z.weight = [z:(nv dv)] h
            linear_attn.in_proj_b.weight = [b:nv] h
            linear_attn.in_proj_a.weight = [a:nv] h
        """,
        vllm="""
            linear_attn.in_proj_qkvz.weight = [q:(nk/tp dk) k:(nk/tp dk) v:(nv/tp dv) z:(nv/tp dv)] h
            linear_attn.in_proj_ba.weight = [b:nv/tp a:nv/tp] h
        """,
    ),
    row(
        "layers.delta_net.conv.weight",
        megatron="self_attention.conv1d.weight = [q:(nk/tp dk) k:(nk/tp dk) v:(nv/tp dv)] 1 kw",
        hf="linear_attn.conv1d.weight = [q:(nk dk) k:(nk dk) v:(nv dv)] 1 kw",
        vllm="linear_attn.conv1d.weight = [q:(nk/tp dk) k:(nk/tp dk) v:(nv/tp dv)] 1 kw",
    ),
    row(
        "layers.delta_net.dt_bias",
        megatron="self_attention.dt_bias = nv/tp",
        hf="linear_attn.dt_bias = nv",
        vllm="linear_attn.dt_bias = nv/tp",
    ),
    row(
        "layers.delta_net.A_log",
        megatron="self_attention.A_log = nv/tp",
        hf="linear_attn.A_log = nv",
        vllm="linear_attn.A_log = nv/tp in float32",
    ),
    row(  # Megatron-Core's norms hold their weights less one, as these checkpoints do; this one norm they publish whole
        "layers.delta_net.out_norm.weight",
        megatron="self_attention.out_norm.weight = [less_one:dv]",
        elsewhere="linear_attn.norm.weight = dv",
    ),
    row(
        "layers.delta_net.out.weight",
        megatron="self_attention.out_proj.weight = h (nv dv)/tp",
        hf="linear_attn.out_proj.weight = h (nv dv)",
        vllm="linear_attn.out_proj.weight = h (nv/tp dv)",
    ),
    where="recurrent",
    sizes={
        "h": "hidden",
        "nk": "key_heads",
        "nr": "value_heads / key_heads",
        "nv": "(nk nr)",
        "dk": "key_head",
        "dv": "value_head",
        "kw": "conv_kernel",
    },
)


MAMBA = block(
    "Mamba 2",
    row(
        "layers.input_norm.weight",
        megatron="norm.weight = h",
        fused_norm="mixer.in_proj.layer_norm_weight = h",
        elsewhere="norm.weight = h",
    ),
    row(
        "layers.mamba.in.weight",
        megatron="mixer.in_proj.weight = [z:(nh/tp hd) x:(nh/tp hd) B:(ng/tp s) C:(ng/tp s) dt:nh/tp] h",
        hf="mixer.in_proj.weight = [z:(nh hd) x:(nh hd) B:(ng s) C:(ng s) dt:nh] h",
        vllm="mixer.in_proj.weight = [z:(nh/tp hd) x:(nh/tp hd) B:(ng/tp s) C:(ng/tp s) dt:nh/tp] h",
    ),
    row(
        "layers.mamba.conv.weight",
        megatron="mixer.{mamba_conv}weight = [x:(nh/tp hd) B:(ng/tp s) C:(ng/tp s)] 1 kw",
        hf="mixer.conv1d.weight = [x:(nh hd) B:(ng s) C:(ng s)] 1 kw",
        vllm="mixer.conv1d.weight = [x:(nh/tp hd) B:(ng/tp s) C:(ng/tp s)] 1 kw",
    ),
    row(
        "layers.mamba.conv.bias",
        when="conv_bias",
        megatron="mixer.{mamba_conv}bias = [x:(nh/tp hd) B:(ng/tp s) C:(ng/tp s)]",
        hf="mixer.conv1d.bias = [x:(nh hd) B:(ng s) C:(ng s)]",
        vllm="mixer.conv1d.bias = [x:(nh/tp hd) B:(ng/tp s) C:(ng/tp s)]",
    ),
    row(
        "layers.mamba.A_log",
        megatron="mixer.A_log = nh/tp",
        hf="mixer.A_log = nh",
        vllm="mixer.A = [minus_exp:nh/tp] in float32",
    ),
    *(
        row(
            f"layers.mamba.{name}",
            megatron=f"mixer.{name} = nh/tp",
            hf=f"mixer.{name} = nh",
            vllm=f"mixer.{name} = nh/tp",
        )
        for name in ("D", "dt_bias")
    ),
    row(
        "layers.mamba.norm.weight",
        megatron="mixer.norm.weight = (nh hd)/tp",
        hf="mixer.norm.weight = (nh hd)",
        vllm="mixer.norm.weight = (nh hd)/tp",
    ),
    row(
        "layers.mamba.out.weight",
        megatron="mixer.out_proj.weight = h (nh hd)/tp",
        hf="mixer.out_proj.weight = h (nh hd)",
        vllm="mixer.out_proj.weight = h (nh/tp hd)",
    ),
    where="recurrent",
    sizes={
        "h": "hidden",
        "nh": "mamba_heads",
        "hd": "mamba_head",
        "ng": "mamba_groups",
        "s": "state",
        "kw": "conv_kernel",
    },
)

# SPDX-License-Identifier: Apache-2.0
"""Rows of routers and routed experts, with the norm in front of them."""

from __future__ import annotations

from collections.abc import Mapping

from ..table import REFUSED, block, cut, row
from .kernels import (
    BLOCKS_FC1,
    BLOCKS_FC2,
    ENGINES_FC1,
    ENGINES_FC2,
    FRACTAL,
    KEPT_TURNS,
    NO_SUCH_KERNEL,
    REFUSED_KERNELS,
)

# How trainers store what no family changes: gate and up of an expert in one tensor, and the way down.
STORED_FC1 = {
    "sequential": "mlp.experts.local_experts.{j}.linear_fc1.weight = ([gate up] i/etp) h",
    "sequential_interleaved": "mlp.experts.local_experts.{j}.linear_fc1.weight = (ib/etp [gate up] is) h",
    "te": "mlp.experts.linear_fc1.weight{j} = ([gate up] i/etp) h",
    "te_interleaved": "mlp.experts.linear_fc1.weight{j} = (ib/etp [gate up] is) h",
    "grouped": "mlp.experts.weight1 = e/ep h ([gate up] i/etp) as h (e/ep [gate up] i/etp)",
    "grouped_interleaved": REFUSED + "blocks of gate and up in turn are not known in this storage of experts",
    "stacked_transposed_interleaved": REFUSED
    + "blocks of gate and up in turn are not known in this storage of experts",
    "stacked": "mlp.experts.linear_fc1.weight = e/ep ([gate up] i/etp) h",
    "stacked_interleaved": "mlp.experts.linear_fc1.weight = e/ep (ib/etp [gate up] is) h",
    "stacked_transposed": ("mlp.experts.linear_fc1.weight = e/ep h ([gate up] i/etp) as e/ep ([gate up] i/etp) h"),
}
STORED_FC2 = {
    "sequential": "mlp.experts.local_experts.{j}.linear_fc2.weight = h i/etp",
    "te": "mlp.experts.linear_fc2.weight{j} = h i/etp",
    "grouped": "mlp.experts.weight2 = e/ep i/etp h as (e/ep i/etp) h",
    "stacked": "mlp.experts.linear_fc2.weight = e/ep h i/etp",
    "stacked_transposed": "mlp.experts.linear_fc2.weight = e/ep i/etp h as e/ep h i/etp",
}

INTERLEAVE = {"i": "(ib is)", "ib": "expert_width / glu_interleave", "is": "glu_interleave"}
CUTS: Mapping[str, Mapping[str, str]] = {
    "sequential_interleaved": INTERLEAVE,
    "te_interleaved": INTERLEAVE,
    "stacked_interleaved": INTERLEAVE,
    "fractal": FRACTAL,
    "fractal_rows": FRACTAL,
    # Tiles of 16; the width of each rank is filled to a multiple of 32.
    "vllm_cpu": {
        "i": "(t il)",
        "t": "etp",
        "il": "expert_width / etp of (i1 i0)",
        "i1": "up(expert_width / etp, 32) / 16",
        "i0": "16",
        "h": "(h1 h0)",
        "h1": "hidden / 16",
        "h0": "16",
    },
}

SPARSE_NORM = row(
    "layers.mlp_norm.weight",
    megatron="pre_mlp_layernorm.weight = h",
    elsewhere="{mlp_norm}.weight = h",
)

ROUTER = (
    row(
        "layers.router.weight",
        megatron="mlp.router.weight = e h",
        hf="{moe}.{router}.weight = e h",
        transformers="""
            {mlp}.{router}.weight = e h in float32 if float32_router
            {mlp}.{router}.weight = e h if not float32_router
        """,
        vllm="""
            {engine_moe}.{router}.weight = e h in float32 if engine_float32_router
            {engine_moe}.{router}.weight = e h if not engine_float32_router
        """,
    ),
    row(
        "layers.router.bias",
        when="router_bias",
        megatron="mlp.router.bias = e",
        hf="{moe}.{router}.bias = e",
        transformers="{mlp}.{router}.bias = e",
        vllm="{engine_moe}.{router}.bias = e",
    ),
    row(
        "layers.router.expert_bias",
        when="expert_bias",
        megatron="mlp.router.expert_bias = e in float32",
        hf="{moe}.{correction}e_score_correction_bias = e in float32",
        transformers="""
            {mlp}.{correction}e_score_correction_bias = e in float32 if float32_router
            {mlp}.{correction}e_score_correction_bias = e if not float32_router
        """,
        vllm="{engine_moe}.{correction}e_score_correction_bias = e in float32",
    ),
)

NO_BIASES = REFUSED + "this storage of experts has no biases"
NO_GATE = REFUSED + "there is no gate to interleave with"

WITHOUT_BIASES = dict.fromkeys(("grouped", "stacked", "stacked_transposed"), NO_BIASES)
ONE_BY_ONE = ("sequential", "sequential_interleaved", "te", "te_interleaved")
ONE_BY_ONE_FC1 = {**{column: STORED_FC1[column] for column in ONE_BY_ONE}, **WITHOUT_BIASES}
ONE_BY_ONE_FC2 = {**{column: STORED_FC2[column] for column in ("sequential", "te")}, **WITHOUT_BIASES}

SIZES = {"h": "hidden", "e": "experts", "i": "expert_width"}

ROUTED_EXPERTS = block(
    "router and routed experts",
    SPARSE_NORM,
    *ROUTER,
    cut(
        row(
            "layers.experts.fc1.weight",
            **STORED_FC1,
            **ENGINES_FC1,
            hf="""
                {moe}.experts.{e}.{gate_name}.weight = ([gate] i) h
                {moe}.experts.{e}.{up_name}.weight = ([up] i) h
            """,
            transformers="{mlp}.experts.gate_up_proj = e ([gate up] i) h",
        ),
        BLOCKS_FC1,
    ),
    cut(
        row(
            "layers.experts.fc2.weight",
            **STORED_FC2,
            **ENGINES_FC2,
            hf="{moe}.experts.{e}.{down_name}.weight = h i",
            transformers="{mlp}.experts.down_proj = e h i",
        ),
        BLOCKS_FC2,
    ),
    where="sparse and gated",
    sizes=SIZES,
    cuts=CUTS,
)

# Published in (in, out) order as the live modules have them, and one tensor for all experts.
TRANSPOSED_EXPERTS = block(
    "router and routed experts, published transposed",
    SPARSE_NORM,
    *ROUTER,
    cut(
        row(
            "layers.experts.fc1.weight",
            **STORED_FC1,
            **ENGINES_FC1,
            hf="{moe}.experts.gate_up_proj = e h ([gate up] i)",
        ),
        BLOCKS_FC1,
    ),
    cut(
        row(
            "layers.experts.fc2.weight",
            **STORED_FC2,
            **ENGINES_FC2,
            hf="{moe}.experts.down_proj = e i h",
        ),
        BLOCKS_FC2,
    ),
    where="sparse",
    sizes=SIZES,
    cuts=CUTS,
)

# The same with gate and up in turn, and biases. Engines keep the turns: their activation reads every second row.
ALTERNATING_EXPERTS = block(
    "router and routed experts, published transposed with gate and up in turn",
    SPARSE_NORM,
    *ROUTER,
    row(
        "layers.experts.fc1.weight",
        **ONE_BY_ONE_FC1,
        **KEPT_TURNS,
        vllm="{engine_experts}.w13_weight = e/ep (i/etp [gate up]) h",
        hf="{moe}.experts.gate_up_proj = e h (i [gate up])",
    ),
    row(
        "layers.experts.fc1.bias",
        sequential="mlp.experts.local_experts.{j}.linear_fc1.bias = ([gate up] i/etp)",
        sequential_interleaved="mlp.experts.local_experts.{j}.linear_fc1.bias = (ib/etp [gate up] is)",
        te="mlp.experts.linear_fc1.bias{j} = ([gate up] i/etp)",
        te_interleaved="mlp.experts.linear_fc1.bias{j} = (ib/etp [gate up] is)",
        **WITHOUT_BIASES,
        **KEPT_TURNS,
        hf="{moe}.experts.gate_up_proj_bias = e (i [gate up])",
        vllm="{engine_experts}.w13_bias = e/ep (i/etp [gate up])",
    ),
    row(
        "layers.experts.fc2.weight",
        **ONE_BY_ONE_FC2,
        **KEPT_TURNS,
        vllm="{engine_experts}.w2_weight = e/ep h i/etp",
        hf="{moe}.experts.down_proj = e i h",
    ),
    row(
        "layers.experts.fc2.bias",
        sequential="mlp.experts.local_experts.{j}.linear_fc2.bias = h",
        te="mlp.experts.linear_fc2.bias{j} = h",
        **WITHOUT_BIASES,
        **KEPT_TURNS,
        hf="{moe}.experts.down_proj_bias = e h",
        vllm="{engine_experts}.w2_bias = e/ep h",
    ),
    where="sparse",
    sizes=SIZES,
    cuts=CUTS,
)

UNGATED_EXPERTS = block(
    "router and routed experts without a gate",
    SPARSE_NORM,
    *ROUTER,
    row(
        "layers.experts.fc1.weight",
        sequential="mlp.experts.local_experts.{j}.linear_fc1.weight = i/etp h",
        te="mlp.experts.linear_fc1.weight{j} = i/etp h",
        grouped="mlp.experts.weight1 = e/ep h i/etp as h (e/ep i/etp)",
        stacked="mlp.experts.linear_fc1.weight = e/ep i/etp h",
        stacked_transposed="mlp.experts.linear_fc1.weight = e/ep h i/etp as e/ep i/etp h",
        hf="{moe}.experts.{e}.up_proj.weight = i h",
        transformers="{mlp}.experts.up_proj = e i h",
        vllm="{engine_experts}.w13_weight = e/ep i/etp h",
        transposed="{engine_experts}.w13_weight = e/ep h i/etp",
        **REFUSED_KERNELS,
        **dict.fromkeys(("sequential_interleaved", "te_interleaved", "stacked_interleaved"), NO_GATE),
        vllm_cpu=NO_SUCH_KERNEL,
    ),
    row(
        "layers.experts.fc2.weight",
        **STORED_FC2,
        **{column: ENGINES_FC2[column] for column in ("vllm", "transposed")},
        **REFUSED_KERNELS,
        vllm_cpu=NO_SUCH_KERNEL,
        hf="{moe}.experts.{e}.down_proj.weight = h i",
        transformers="{mlp}.experts.down_proj = e h i",
    ),
    where="sparse and not gated",
    sizes=SIZES,
)

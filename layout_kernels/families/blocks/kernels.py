# SPDX-License-Identifier: Apache-2.0
"""How engines lay routed experts out for their kernels: columns that the rows of `experts.py` share."""

from __future__ import annotations

from ..table import REFUSED

# How engines lay them out for their kernels.
ENGINES_FC1 = {
    "vllm": "{engine_experts}.w13_weight = e/ep ([gate up] i/etp) h",
    "up_first": "{engine_experts}.w13_weight = e/ep ([up gate] i/etp) h",
    "transposed": "{engine_experts}.w13_weight = e/ep h ([gate up] i/etp)",
    "alternating": "{engine_experts}.w13_weight = e/ep (i/etp [gate up]) h",
    "blocks": (
        "{engine_experts}.w13_weight = e/ep k1 (t/etp i2 i0 [up gate] i1) k0 as e/ep ([up gate] t/etp i2 i1 i0) (k1 k0)"
    ),
    "shuffled": (
        "{engine_experts}.w13_weight = e/ep ([gate up] i1/etp) h2 h1 i0 h0 as e/ep ([gate up] i1/etp i0) (h2 h1 h0)"
    ),
    "fractal": ("{engine_experts}.w13_weight = e/ep ([gate up] i1/etp) h1 h0 i0 as e/ep (h1 h0) ([gate up] i1/etp i0)"),
    "fractal_rows": (
        "{engine_experts}.w13_weight = e/ep h1 ([gate up] i1/etp) i0 h0 as e/ep ([gate up] i1/etp i0) (h1 h0)"
    ),
    "vllm_cpu": ("{engine_experts}.w13_weight = e/ep ([gate up] t/etp i1) h i0 as e/ep ([gate up] t/etp i1 i0) h"),
}
ENGINES_FC2 = {
    "vllm": "{engine_experts}.w2_weight = e/ep h i/etp",
    "transposed": "{engine_experts}.w2_weight = e/ep i/etp h",
    "blocks": "{engine_experts}.w2_weight = e/ep t/etp i1 (n2 n0 n1) i0 as e/ep (n2 n1 n0) (t/etp i1 i0)",
    "alternating": "{engine_experts}.w2_weight = e/ep h i/etp",
    "up_first": "{engine_experts}.w2_weight = e/ep h i/etp",
    "shuffled": "{engine_experts}.w2_weight = e/ep h1 i2/etp i1 h0 i0 as e/ep (h1 h0) (i2/etp i1 i0)",
    "fractal": "{engine_experts}.w2_weight = e/ep h1 i1/etp i0 h0 as e/ep (i1/etp i0) (h1 h0)",
    "fractal_rows": "{engine_experts}.w2_weight = e/ep i1/etp h1 h0 i0 as e/ep (h1 h0) (i1/etp i0)",
    "vllm_cpu": "{engine_experts}.w2_weight = e/ep h1 t/etp i1 i0 h0 as e/ep (h1 h0) (t/etp i1 i0)",
}

FRACTAL = {"i": "(i1 i0)", "i1": "expert_width / 16", "i0": "16", "h": "(h1 h0)", "h1": "hidden / 16", "h0": "16"}

# Tensor cores read blocks of 128 bytes of a row; the rows are shuffled in groups. Widths fill 128.
# AITER wants tiles of 16 rows and 32 columns.
BLOCKS_FC1 = {
    "shuffled": {
        "i": "(i1 i0)",
        "i1": "expert_width / 16",
        "i0": "16",
        "h": "(h2 h1 h0)",
        "h2": "hidden / 32",
        "h1": "4",
        "h0": "8",
    },
    "blocks": {
        "i": "(t il)",
        "t": "etp",
        "il": "expert_width / etp of (i2 i1 i0)",
        "i2": "up(expert_width / etp, 128) / 16",
        "i1": "8",
        "i0": "2",
        "h": "(k1 k0)",
        "k1": "hidden / 64",
        "k0": "64",
    },
}
BLOCKS_FC2 = {
    "shuffled": {
        "i": "(i2 i1 i0)",
        "i2": "expert_width / 32",
        "i1": "4",
        "i0": "8",
        "h": "(h1 h0)",
        "h1": "hidden / 16",
        "h0": "16",
    },
    "blocks": {
        "i": "(t il)",
        "t": "etp",
        "il": "expert_width / etp of (i1 i0)",
        "i1": "up(expert_width / etp, 128) / 64",
        "i0": "64",
        "h": "(n2 n1 n0)",
        "n2": "hidden / 32",
        "n1": "8",
        "n0": "4",
    },
}

NO_SUCH_KERNEL = REFUSED + "no layout of this kernel is written down for such experts"
REFUSED_KERNELS = dict.fromkeys(
    ("up_first", "blocks", "shuffled", "alternating", "fractal", "fractal_rows"), NO_SUCH_KERNEL
)
KEPT_TURNS = {**REFUSED_KERNELS, "transposed": NO_SUCH_KERNEL, "vllm_cpu": NO_SUCH_KERNEL}

# SPDX-License-Identifier: Apache-2.0
"""The families: for each model_type, which blocks its models are made of and what is particular to its config.

A new family is an entry here. ``fields`` and ``derived`` replace entries of those in `quantities.py`; ``refused`` names
conditions that the tables do not describe. What a family has and no other, a layout, is a row or block in `blocks/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .blocks import (
    DENSE_MLP,
    EMBEDDING,
    GROUPED_QUERY_ATTENTION,
    LATENT_ATTENTION,
    MULTI_TOKEN_PREDICTION,
    ROUTED_EXPERTS,
    SHARED_EXPERT,
)
from .table import Block

NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True)
class Model:
    """One family: blocks of the model, of a layer and of multi-token prediction, and its quantities."""

    title: str
    model: tuple[Block, ...]
    layer: tuple[Block, ...]
    mtp: tuple[Block, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict, hash=False)
    derived: Mapping[str, str] = field(default_factory=dict, hash=False)
    refused: Mapping[str, str] = field(default_factory=dict, hash=False)


NO_MTP = {"mtp": "0"}

MODELS: Mapping[str, Model] = {
    "glm4_moe_lite": Model(
        "GLM-4.7-Flash",
        model=(EMBEDDING,),
        layer=(LATENT_ATTENTION, DENSE_MLP, ROUTED_EXPERTS, SHARED_EXPERT),
        mtp=(MULTI_TOKEN_PREDICTION,),
        derived={
            "sparse": "l >= layers or (mlp_kinds[l] == 'sparse' if mlp_kinds else l >= first_sparse)",
            "qk_norm": "True",
            "expert_bias": "True",
            "float32_router": "True",
        },
        refused={"attention_bias": "latent attention with biases"},
    ),
    "glm4_moe": Model(
        "GLM-4.5, 4.6, 4.7",
        model=(EMBEDDING,),
        layer=(GROUPED_QUERY_ATTENTION, DENSE_MLP, ROUTED_EXPERTS, SHARED_EXPERT),
        mtp=(MULTI_TOKEN_PREDICTION,),
        fields={"qk_norm": "use_qk_norm = False"},
        derived={"sparse": "l >= first_sparse", "expert_bias": "True", "float32_router": "True"},
    ),
    "qwen3_moe": Model(
        "Qwen3-MoE",
        model=(EMBEDDING,),
        layer=(GROUPED_QUERY_ATTENTION, DENSE_MLP, ROUTED_EXPERTS),
        derived={
            **NO_MTP,
            "sparse": "l not in dense_layers and (l + 1) % sparse_step == 0",
            "qk_norm": "True",
            "out_bias": "attention_bias",
        },
    ),
    "qwen3": Model(
        "Qwen3",
        model=(EMBEDDING,),
        layer=(GROUPED_QUERY_ATTENTION, DENSE_MLP),
        derived={**NO_MTP, "qk_norm": "True", "out_bias": "attention_bias"},
    ),
}

# SPDX-License-Identifier: Apache-2.0
"""Tiny configs of every family, as plain dicts, and what each family's published names are.

Sizes say nothing on purpose: twice an expert's width and all query heads are as wide as the hidden size; two value
heads share a key head. The words are those of checkpoints, written down here a second time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

COMMON: dict[str, Any] = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 8}
COMMON |= {"intermediate_size": 48}
GROUPED = {**COMMON, "num_key_value_heads": 2, "head_dim": 4}
SPLIT = {"moe_intermediate_size": 16, "num_experts_per_tok": 2}
GLM = {**SPLIT, "n_routed_experts": 8, "n_shared_experts": 2, "first_k_dense_replace": 1}
DRAFT = {"num_nextn_predict_layers": 1}
LATENT = {**COMMON, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 6, "qk_rope_head_dim": 8}
LATENT |= {"v_head_dim": 4}
INDEXED = {**LATENT, "index_n_heads": 3, "index_head_dim": 12}
QWEN = {**SPLIT, "num_experts": 8}
SHARED = {**QWEN, "shared_expert_intermediate_size": 24}
LOCAL = {"num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 16}
DELTA = {"linear_num_key_heads": 8, "linear_num_value_heads": 16, "linear_key_head_dim": 3, "linear_conv_kernel_dim": 4}
DELTA |= {"linear_value_head_dim": 2, "layer_types": ["linear_attention", "full_attention"]}
MAMBA = {"mamba_num_heads": 16, "mamba_head_dim": 2, "n_groups": 8, "ssm_state_size": 3, "conv_kernel": 4}


@dataclass(frozen=True)
class Published:
    """One family's ways of publishing: words of its names, and how its experts lie."""

    mlp: str = "mlp"
    attention: str = "self_attn"
    trunk: str = "model"
    embedding: str = "embed_tokens"
    final_norm: str = "norm"
    norms: tuple[str, str] = ("input_layernorm", "post_attention_layernorm")
    behind: tuple[str, str] | None = None  # norms behind attention and MLP
    shared: str = "shared_experts"
    router: str = "gate"
    bias: str | None = None  # of the choice of experts
    experts: str = "split"


W = Published(mlp="block_sparse_moe", experts="w")
PLAIN = Published()
GLM_NAMES = Published(bias="gate.e_score_correction_bias")
QWEN_NAMES = Published(shared="shared_expert")

# name -> (config, how it is published); the name begins with the model_type
FAMILIES: dict[str, tuple[dict[str, Any], Published]] = {
    "llama": ({**GROUPED, "attention_bias": True, "mlp_bias": True}, PLAIN),
    "llama tied": ({**COMMON, "tie_word_embeddings": True}, PLAIN),
    "qwen2": ({**COMMON, "num_key_value_heads": 2}, PLAIN),
    "qwen3": ({**GROUPED, "attention_bias": True, "tie_word_embeddings": True}, PLAIN),
    "glm4": (
        {**GROUPED, "attention_bias": True},
        Published(behind=("post_self_attn_layernorm", "post_mlp_layernorm")),
    ),
    "glm": (GROUPED, PLAIN),
    "gemma3_text": (
        GROUPED,
        Published(
            norms=("input_layernorm", "pre_feedforward_layernorm"),
            behind=("post_attention_layernorm", "post_feedforward_layernorm"),
        ),
    ),
    "mimo": ({**GROUPED, **DRAFT}, PLAIN),
    "mimo tied": ({**GROUPED, **DRAFT, "tie_word_embeddings": True}, PLAIN),
    "qwen2_moe": ({**COMMON, "num_key_value_heads": 4, **SHARED, "mlp_only_layers": [0]}, QWEN_NAMES),
    "qwen3_moe": ({**GROUPED, **QWEN}, QWEN_NAMES),
    "qwen3_next": ({**GROUPED, **SHARED, **DELTA, **DRAFT}, QWEN_NAMES),
    "qwen3_5_text": ({**GROUPED, **DELTA, "attention_bias": True}, QWEN_NAMES),
    "qwen3_5_text tied": ({**GROUPED, **DELTA, **DRAFT, "tie_word_embeddings": True}, QWEN_NAMES),
    "qwen3_5_moe_text": ({**GROUPED, **SHARED, **DELTA, **DRAFT}, QWEN_NAMES),
    "mixtral": ({**GROUPED, **LOCAL}, W),
    "minimax_m2": (
        {**GROUPED, **LOCAL},
        Published(mlp="block_sparse_moe", experts="w", bias="e_score_correction_bias"),
    ),
    "gpt_oss": ({**GROUPED, **LOCAL}, Published(router="router", experts="alternating")),
    "llama4_text": (
        {**GROUPED, **LOCAL, "intermediate_size_mlp": 48, "interleave_moe_layer_step": 2},
        Published(mlp="feed_forward", router="router", shared="shared_expert", experts="transposed"),
    ),
    "glm4_moe": ({**GROUPED, **GLM, **DRAFT, "use_qk_norm": True, "attention_bias": True}, GLM_NAMES),
    "glm4_moe_lite": ({**LATENT, **GLM, **DRAFT}, GLM_NAMES),
    "glm4_moe_lite no q rank": ({**LATENT, **GLM, "q_lora_rank": None}, GLM_NAMES),
    "deepseek_v2": ({**LATENT, **GLM}, PLAIN),
    "deepseek_v3": ({**LATENT, **GLM, **DRAFT, "tie_word_embeddings": True}, GLM_NAMES),
    "kimi_k2": ({**LATENT, **GLM, "num_nextn_predict_layers": 0}, GLM_NAMES),
    "deepseek_v32": ({**INDEXED, **GLM, **DRAFT}, GLM_NAMES),
    "glm_moe_dsa": ({**INDEXED, **GLM, "indexer_types": ["full", "shared"]}, GLM_NAMES),
    "mimo_v2_flash": (
        {**GROUPED, **SPLIT, "n_routed_experts": 8, "v_head_dim": 8, "hybrid_layer_pattern": [0, 1]}
        | {"moe_layer_freq": [0, 1], "swa_num_key_value_heads": 4},
        GLM_NAMES,
    ),
    "nemotron_h": (
        {**GROUPED, **SPLIT, **MAMBA, "num_hidden_layers": 4, "hybrid_override_pattern": "M*E-"}
        | {"n_routed_experts": 8, "moe_shared_expert_intermediate_size": 24},
        Published("mixer", "mixer", "backbone", "embeddings", "norm_f", ("norm", "norm"), bias=GLM_NAMES.bias),
    ),
}


def config_of(name: str) -> dict[str, Any]:
    return {"model_type": name.split(" ")[0], **FAMILIES[name][0]}

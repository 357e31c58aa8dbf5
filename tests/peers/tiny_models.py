# SPDX-License-Identifier: Apache-2.0
"""Small models of some families, each a Hugging Face config as a plain dict: both peers build from it.

Sizes that say nothing are wanted: twice an expert's width equals the hidden size, and so do the rows of all query
heads, so that no reader can tell a layout from a shape. `rms_norm_eps` is 1e-6 because transformers 5.24 fixes that
value in the latent norms of GLM-4.7-Flash whatever its config says.
"""

from __future__ import annotations

from typing import Any

_COMMON: dict[str, Any] = {
    "vocab_size": 90,  # the trainer pads it
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
}
_GROUPED_QUERY: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 16}
_GLM_EXPERTS: dict[str, Any] = {
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "routed_scaling_factor": 1.5,
    "norm_topk_prob": True,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 1,
}

CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3": {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        **_COMMON,
        **_GROUPED_QUERY,
        "intermediate_size": 96,
        "attention_bias": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        **_COMMON,
        **_GROUPED_QUERY,
        "intermediate_size": 96,
        "moe_intermediate_size": 32,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "attention_bias": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "glm4_moe": {
        "model_type": "glm4_moe",
        "architectures": ["Glm4MoeForCausalLM"],
        **_COMMON,
        **_GROUPED_QUERY,
        **_GLM_EXPERTS,
        "use_qk_norm": True,
        "attention_bias": True,
        "partial_rotary_factor": 0.5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    },
    "glm4_moe_lite": {
        "model_type": "glm4_moe_lite",
        "architectures": ["Glm4MoeLiteForCausalLM"],
        **_COMMON,
        **_GLM_EXPERTS,
        "num_key_value_heads": 4,
        "q_lora_rank": 24,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 24,
        "attention_bias": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
}
CONFIGS["llama"] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    **_COMMON,
    **_GROUPED_QUERY,
    "intermediate_size": 96,
    "attention_bias": False,
    "mlp_bias": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}
CONFIGS["qwen2"] = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    **_COMMON,
    **_GROUPED_QUERY,
    "intermediate_size": 96,
    "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}
CONFIGS["qwen2_moe"] = {
    "model_type": "qwen2_moe",
    "architectures": ["Qwen2MoeForCausalLM"],
    **_COMMON,
    **_GROUPED_QUERY,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "qkv_bias": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}
CONFIGS["deepseek_v3"] = {
    **CONFIGS["glm4_moe_lite"],
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
}
CONFIGS["deepseek_v3_no_q_rank"] = {**CONFIGS["deepseek_v3"], "q_lora_rank": None}
CONFIGS["qwen3_tied"] = {**CONFIGS["qwen3"], "tie_word_embeddings": True}
# Nothing to pad: the trainer's model then needs no word about the vocabulary.
CONFIGS["qwen3"]["vocab_size"] = 96


def experts_of(config: dict[str, Any]) -> int:
    """Number of routed experts, 0 for a dense model."""
    return int(config.get("n_routed_experts", config.get("num_experts", 0)))


def draft_layers_of(config: dict[str, Any]) -> int:
    """Number of multi-token prediction layers."""
    return int(config.get("num_nextn_predict_layers", 0))


def sparse_layers_of(config: dict[str, Any]) -> list[int]:
    """For each decoder layer 1 where its MLP is a mixture of experts, else 0."""
    dense = int(config.get("first_k_dense_replace", 0)) if experts_of(config) else int(config["num_hidden_layers"])
    return [int(layer >= dense) for layer in range(config["num_hidden_layers"])]


def padded_vocabulary_of(config: dict[str, Any], tensor_ranks: int) -> int:
    """The vocabulary that Megatron's embedding and output layer have room for: rows in multiples of 16 a rank."""
    unit = 16 * tensor_ranks
    return -(-int(config["vocab_size"]) // unit) * unit

# SPDX-License-Identifier: Apache-2.0
"""Tiny configs of every family that transformers 5.24 has: the class's prefix, and fields.

Among them are square sizes: twice an expert's width, or all heads, are as wide as the hidden size, or an expert is.
"""

from __future__ import annotations

from typing import Any

COMMON = {"vocab_size": 96, "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 64}
COMMON |= {"num_hidden_layers": 2, "intermediate_size": 48, "pad_token_id": None}
GROUPED = {**COMMON, "num_key_value_heads": 2, "head_dim": 16}
LATENT = {**COMMON, "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 20, "qk_nope_head_dim": 12}
LATENT |= {"qk_rope_head_dim": 4, "v_head_dim": 10}
INDEXED = {**LATENT, "index_n_heads": 6, "index_head_dim": 12, "index_topk": 8}
QWEN_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 40}
SHARED = {**QWEN_EXPERTS, "shared_expert_intermediate_size": 36}
GLM_EXPERTS = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "n_shared_experts": 2}
GLM_EXPERTS |= {"num_hidden_layers": 3, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1}
LOCAL_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
DELTA_NET = {"linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 8}
DELTA_NET |= {"linear_value_head_dim": 12, "linear_conv_kernel_dim": 4}
HYBRID = {**GROUPED, **DELTA_NET, "layer_types": ["linear_attention", "full_attention"]}
MAMBA = {"mamba_num_heads": 4, "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 6, "conv_kernel": 4}
NEMOTRON = {**GROUPED, **MAMBA, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 40}
NEMOTRON |= {"moe_shared_expert_intermediate_size": 36, "num_hidden_layers": 4}
WINDOWS = {"layer_types": ["full_attention", "sliding_attention"], "mlp_layer_types": ["dense", "sparse"]}
MIMO = {**GROUPED, **WINDOWS, "v_head_dim": 12, "n_routed_experts": 4, "moe_intermediate_size": 40}
MIMO |= {"num_experts_per_tok": 2}

# name -> (prefix of the classes, fields); the name begins with the family's model_type
TINY: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3": ("Qwen3", GROUPED),
    "qwen3 tied, biases": ("Qwen3", {**GROUPED, "tie_word_embeddings": True, "attention_bias": True}),
    "qwen3 square": ("Qwen3", {**GROUPED, "intermediate_size": 32, "num_key_value_heads": 4}),
    "qwen3_moe": ("Qwen3Moe", {**GROUPED, **QWEN_EXPERTS}),
    "qwen3_moe mixed": ("Qwen3Moe", {**GROUPED, **QWEN_EXPERTS, "num_hidden_layers": 4, "mlp_only_layers": [1]}),
    "qwen3_moe step": ("Qwen3Moe", {**GROUPED, **QWEN_EXPERTS, "num_hidden_layers": 4, "decoder_sparse_step": 2}),
    "qwen3_moe square": ("Qwen3Moe", {**GROUPED, **QWEN_EXPERTS, "moe_intermediate_size": 32}),
    "glm4_moe": ("Glm4Moe", {**GROUPED, **GLM_EXPERTS, "use_qk_norm": True}),
    "glm4_moe biases": (
        "Glm4Moe",
        {**GROUPED, **GLM_EXPERTS, "first_k_dense_replace": 2, "attention_bias": True, "num_nextn_predict_layers": 1},
    ),
    "glm4_moe_lite": ("Glm4MoeLite", {**LATENT, **GLM_EXPERTS}),
    "glm4_moe_lite mtp": ("Glm4MoeLite", {**LATENT, **GLM_EXPERTS, "num_nextn_predict_layers": 1}),
    "glm4_moe_lite no q rank": ("Glm4MoeLite", {**LATENT, **GLM_EXPERTS, "q_lora_rank": None}),
    "glm4_moe_lite square": ("Glm4MoeLite", {**LATENT, **GLM_EXPERTS, "moe_intermediate_size": 32, "v_head_dim": 16}),
    "glm4": ("Glm4", {**GROUPED, "attention_bias": True}),
    "glm4 square": ("Glm4", {**GROUPED, "intermediate_size": 32, "num_key_value_heads": 4}),
    "glm": ("Glm", {**GROUPED, "attention_bias": True}),
    "glm_moe_dsa": ("GlmMoeDsa", {**INDEXED, **GLM_EXPERTS}),
    "glm_moe_dsa shared indexers": (
        "GlmMoeDsa",
        {**INDEXED, **GLM_EXPERTS, "num_hidden_layers": 8, "index_topk_freq": 4, "index_skip_topk_offset": 3},
    ),
    "glm_moe_dsa square": ("GlmMoeDsa", {**INDEXED, **GLM_EXPERTS, "index_head_dim": 8, "moe_intermediate_size": 64}),
    "deepseek_v2": ("DeepseekV2", {**LATENT, **GLM_EXPERTS}),
    "deepseek_v2 no q rank": ("DeepseekV2", {**LATENT, **GLM_EXPERTS, "q_lora_rank": None}),
    "deepseek_v3": ("DeepseekV3", {**LATENT, **GLM_EXPERTS}),
    "deepseek_v3 no q rank": ("DeepseekV3", {**LATENT, **GLM_EXPERTS, "q_lora_rank": None}),
    "deepseek_v3 square": ("DeepseekV3", {**LATENT, **GLM_EXPERTS, "moe_intermediate_size": 64, "v_head_dim": 16}),
    "deepseek_v32": ("DeepseekV32", {**INDEXED, **GLM_EXPERTS}),
    "llama": ("Llama", GROUPED),
    "llama tied, biases": (
        "Llama",
        {**GROUPED, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "llama defaults": ("Llama", {**COMMON, "num_key_value_heads": None, "head_dim": None}),
    "llama square": ("Llama", {**GROUPED, "intermediate_size": 32, "num_key_value_heads": 4}),
    "qwen2": ("Qwen2", {**COMMON, "num_key_value_heads": 2}),
    "qwen2 tied": ("Qwen2", {**COMMON, "num_key_value_heads": 2, "tie_word_embeddings": True}),
    "qwen2 square": ("Qwen2", {**COMMON, "num_key_value_heads": 4, "intermediate_size": 32}),
    "qwen2_moe": ("Qwen2Moe", {**COMMON, **SHARED, "num_key_value_heads": 2, "num_hidden_layers": 3}),
    "qwen2_moe mixed": (
        "Qwen2Moe",
        {**COMMON, **SHARED, "num_key_value_heads": 2, "mlp_only_layers": [0], "qkv_bias": False},
    ),
    "qwen2_moe square": (
        "Qwen2Moe",
        {**COMMON, **SHARED, "num_key_value_heads": 4, "moe_intermediate_size": 32}
        | {"shared_expert_intermediate_size": 32},
    ),
    "mixtral": ("Mixtral", {**GROUPED, **LOCAL_EXPERTS}),
    "mixtral square": ("Mixtral", {**GROUPED, **LOCAL_EXPERTS, "intermediate_size": 64}),
    "qwen3_next": ("Qwen3Next", {**HYBRID, **SHARED}),
    "qwen3_next intervals": (
        "Qwen3Next",
        {**GROUPED, **DELTA_NET, **SHARED, "num_hidden_layers": 5, "attention_bias": True, "mlp_only_layers": [0]},
    ),
    "qwen3_next square": (
        "Qwen3Next",
        {**HYBRID, **SHARED, "moe_intermediate_size": 32, "linear_num_value_heads": 2, "linear_value_head_dim": 8},
    ),
    "qwen3_5_text": ("Qwen3_5", HYBRID),
    "qwen3_5_text square": ("Qwen3_5", {**HYBRID, "intermediate_size": 32, "linear_num_value_heads": 2}),
    "qwen3_5_moe_text": ("Qwen3_5Moe", {**HYBRID, **SHARED}),
    "qwen3_5_moe_text square": ("Qwen3_5Moe", {**HYBRID, **SHARED, "moe_intermediate_size": 32}),
    "gpt_oss": ("GptOss", {**GROUPED, **LOCAL_EXPERTS}),
    "gpt_oss square": ("GptOss", {**GROUPED, **LOCAL_EXPERTS, "intermediate_size": 64}),
    "gpt_oss half": ("GptOss", {**GROUPED, **LOCAL_EXPERTS, "intermediate_size": 32}),
    "minimax_m2": ("MiniMaxM2", {**GROUPED, **LOCAL_EXPERTS}),
    "minimax_m2 square": ("MiniMaxM2", {**GROUPED, **LOCAL_EXPERTS, "intermediate_size": 32, "num_key_value_heads": 4}),
    "mimo_v2_flash": ("MiMoV2Flash", MIMO),
    "mimo_v2_flash square": ("MiMoV2Flash", {**MIMO, "v_head_dim": 16, "moe_intermediate_size": 32}),
    "nemotron_h": ("NemotronH", NEMOTRON),
    "nemotron_h square": ("NemotronH", {**NEMOTRON, "mamba_head_dim": 16, "moe_intermediate_size": 64}),
    "gemma3_text": ("Gemma3", GROUPED),
    "gemma3_text square": ("Gemma3", {**GROUPED, "intermediate_size": 32, "num_key_value_heads": 4}),
    "llama4_text": (
        "Llama4",
        {**GROUPED, **LOCAL_EXPERTS, "intermediate_size_mlp": 80, "interleave_moe_layer_step": 2},
    ),
    "llama4_text square": (
        "Llama4",
        {**GROUPED, **LOCAL_EXPERTS, "intermediate_size": 32, "intermediate_size_mlp": 64, "attention_bias": True},
    ),
}


def build(name: str) -> Any:
    """A live model of that config."""
    import transformers

    prefix, fields = TINY[name]
    kind = "TextConfig" if hasattr(transformers, f"{prefix}TextConfig") else "Config"
    config = getattr(transformers, prefix + kind)(**fields)
    return getattr(transformers, f"{prefix}ForCausalLM")(config)

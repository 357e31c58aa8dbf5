# SPDX-License-Identifier: Apache-2.0
"""The families: for each model_type, which blocks its models are made of and what is particular to its config.

A new family is an entry here. ``fields`` and ``derived`` replace entries of those in `quantities.py`; ``refused`` names
conditions that the tables do not describe. What a family has and no other, a layout, is a row or block in `blocks/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .blocks import (
    ALTERNATING_EXPERTS,
    DENSE_MLP,
    GATED_DELTA_NET,
    GROUPED_QUERY_ATTENTION,
    INDEXER,
    LATENT_ATTENTION,
    MAMBA,
    MULTI_TOKEN_PREDICTION,
    MULTI_TOKEN_PREDICTION_APART,
    MULTI_TOKEN_PREDICTION_SWAPPED,
    POST_NORMS,
    ROUTED_EXPERTS,
    SHARED_EXPERT,
    TRANSPOSED_EXPERTS,
    UNGATED_EXPERTS,
)
from .model import Model

NO_MTP = {"mtp": "0"}
HEADS_SHARE_HIDDEN = {"head": "head_dim = hidden / heads"}
QUERY_HEADS = {"kv_heads": "num_key_value_heads = heads"}
SPARSE_BY_STEP = "l not in dense_layers and (l + 1) % sparse_step == 0"
SPARSE_BY_KIND = "l >= layers or (mlp_kinds[l] == 'sparse' if mlp_kinds else l >= first_sparse)"

LATENT = {"qk_norm": "True", "expert_bias": "True", "float32_router": "True", "engine_float32_router": "False"}
LATENT_REFUSED = {"attention_bias": "latent attention with biases"}
EVERY_LAYER_SPARSE = {"moe_step": "moe_layer_freq = 1"}
STEP_REFUSED = {"moe_step != 1": "sparse layers with a step"}
INDEXED = (
    "index_kinds[l] == 'full' if index_kinds and l < layers"
    " else l >= layers or l + 1 < index_offset or (l + 1 - index_offset) % index_every == 0"
)
INDEX_FIELDS = {"index_every": "index_topk_freq = 1", "index_offset": "index_skip_topk_offset = 2"}

RECURRENT_BY_KIND = (
    "l < layers and (layer_kinds[l] == 'linear_attention' if layer_kinds else (l + 1) % full_every != 0)"
)
GATED_ATTENTION = {
    "recurrent": RECURRENT_BY_KIND,
    "output_gate": "True",
    "qk_norm": "True",
    "out_bias": "attention_bias",
}
GATED_SHARED_EXPERT = {"shared_width": "shared_expert_width", "shared": "'shared_expert'", "shared_gate": "True"}
W1_W2_W3 = {
    "sparse": "True",
    "moe": "'block_sparse_moe'",
    "engine_moe": "'block_sparse_moe'",
    "gate_name": "'w1'",
    "up_name": "'w3'",
    "down_name": "'w2'",
}
DEEPSEEK = Model(
    "DeepSeek-V3, R1",
    layer=(LATENT_ATTENTION, DENSE_MLP, ROUTED_EXPERTS, SHARED_EXPERT),
    mtp=(MULTI_TOKEN_PREDICTION,),
    fields=EVERY_LAYER_SPARSE,
    derived={**LATENT, "sparse": "l >= first_sparse"},
    refused={**LATENT_REFUSED, **STEP_REFUSED},
)
SPARSE_DEEPSEEK = Model(
    "DeepSeek-V3.2",
    layer=(LATENT_ATTENTION, INDEXER, DENSE_MLP, ROUTED_EXPERTS, SHARED_EXPERT),
    mtp=(MULTI_TOKEN_PREDICTION,),
    fields={**EVERY_LAYER_SPARSE, **INDEX_FIELDS},
    derived={**LATENT, "sparse": SPARSE_BY_KIND, "indexed": INDEXED},
    refused={**LATENT_REFUSED, **STEP_REFUSED},
)

MODELS: Mapping[str, Model] = {
    "glm4_moe_lite": Model(
        "GLM-4.7-Flash",
        layer=(LATENT_ATTENTION, DENSE_MLP, ROUTED_EXPERTS, SHARED_EXPERT),
        mtp=(MULTI_TOKEN_PREDICTION,),
        derived={**LATENT, "sparse": SPARSE_BY_KIND, "engine_float32_router": "True"},
        refused=LATENT_REFUSED,
    ),
    "glm4_moe": Model(
        "GLM-4.5, 4.6, 4.7",
        layer=(GROUPED_QUERY_ATTENTION, DENSE_MLP, ROUTED_EXPERTS, SHARED_EXPERT),
        mtp=(MULTI_TOKEN_PREDICTION,),
        fields={"qk_norm": "use_qk_norm = False"},
        derived={"sparse": "l >= first_sparse", "expert_bias": "True", "float32_router": "True"},
    ),
    "glm_moe_dsa": replace(SPARSE_DEEPSEEK, title="GLM-5, 5.1, 5.2"),
    "glm4": Model(
        "GLM-4-0414",
        layer=(GROUPED_QUERY_ATTENTION, DENSE_MLP, POST_NORMS),
        derived={**NO_MTP, "published_fused": "True"},
    ),
    "glm": Model(
        "GLM-4-9B",
        layer=(GROUPED_QUERY_ATTENTION, DENSE_MLP),
        derived={**NO_MTP, "published_fused": "True"},
    ),
    "qwen3_moe": Model(
        "Qwen3-MoE",
        layer=(GROUPED_QUERY_ATTENTION, DENSE_MLP, ROUTED_EXPERTS),
        derived={**NO_MTP, "sparse": SPARSE_BY_STEP, "qk_norm": "True", "out_bias": "attention_bias"},
    ),
    "qwen3": Model(
        "Qwen3",
        layer=(GROUPED_QUERY_ATTENTION, DENSE_MLP),
        derived={**NO_MTP, "qk_norm": "True", "out_bias": "attention_bias"},
    ),
    "qwen3_next": Model(
        "Qwen3-Next",
        layer=(GROUPED_QUERY_ATTENTION, GATED_DELTA_NET, DENSE_MLP, ROUTED_EXPERTS, SHARED_EXPERT),
        mtp=(MULTI_TOKEN_PREDICTION_APART,),
        derived={**GATED_ATTENTION, **GATED_SHARED_EXPERT, "sparse": SPARSE_BY_STEP, "by_key_head": "True"},
        drafts="apart",
    ),
    "qwen3_5_text": Model(
        "Qwen3.5 (text)",
        layer=(GROUPED_QUERY_ATTENTION, GATED_DELTA_NET, DENSE_MLP),
        mtp=(MULTI_TOKEN_PREDICTION_APART,),
        derived=GATED_ATTENTION,
        drafts="apart",
    ),
    "qwen3_5_moe_text": Model(
        "Qwen3.5-MoE (text)",
        layer=(GROUPED_QUERY_ATTENTION, GATED_DELTA_NET, ROUTED_EXPERTS, SHARED_EXPERT),
        mtp=(MULTI_TOKEN_PREDICTION_APART,),
        derived={**GATED_ATTENTION, **GATED_SHARED_EXPERT, "sparse": "True"},
        drafts="apart",
    ),
    "qwen2": Model(
        "Qwen2, 2.5",
        layer=(GROUPED_QUERY_ATTENTION, DENSE_MLP),
        fields=HEADS_SHARE_HIDDEN,
        derived={**NO_MTP, "qkv_bias": "True"},
    ),
    "qwen2_moe": Model(
        "Qwen2-MoE",
        layer=(GROUPED_QUERY_ATTENTION, DENSE_MLP, ROUTED_EXPERTS, SHARED_EXPERT),
        fields={**HEADS_SHARE_HIDDEN, "qkv_bias": "qkv_bias = True"},
        derived={**NO_MTP, **GATED_SHARED_EXPERT, "sparse": SPARSE_BY_STEP},
    ),
    "deepseek_v2": replace(
        DEEPSEEK, title="DeepSeek-V2", mtp=(), derived={**DEEPSEEK.derived, **NO_MTP, "expert_bias": "False"}
    ),
    "deepseek_v3": DEEPSEEK,
    "deepseek_v32": SPARSE_DEEPSEEK,
    "kimi_k2": replace(DEEPSEEK, title="Kimi-K2"),
    "llama": Model(
        "Llama 2, 3.x",
        layer=(GROUPED_QUERY_ATTENTION, DENSE_MLP),
        fields={**HEADS_SHARE_HIDDEN, **QUERY_HEADS},
        derived={**NO_MTP, "out_bias": "attention_bias"},
    ),
    "llama4_text": Model(
        "Llama 4 (text)",
        layer=(GROUPED_QUERY_ATTENTION, DENSE_MLP, TRANSPOSED_EXPERTS, SHARED_EXPERT),
        fields={
            "width": "intermediate_size_mlp",
            "expert_width": "intermediate_size",
            "sparse_layers": "moe_layers = None",
            "sparse_step": "interleave_moe_layer_step = 1",
        },
        derived={
            **NO_MTP,
            "sparse": "l in sparse_layers if sparse_layers else (l + 1) % sparse_step == 0",
            "out_bias": "attention_bias",
            "mlp": "'feed_forward'",
            "router": "'router'",
            "shared": "'shared_expert'",
            "shared_width": "expert_width",
        },
    ),
    "mixtral": Model(
        "Mixtral",
        layer=(GROUPED_QUERY_ATTENTION, ROUTED_EXPERTS),
        fields={**HEADS_SHARE_HIDDEN, "expert_width": "intermediate_size"},
        derived={**NO_MTP, **W1_W2_W3},
    ),
    "minimax_m2": Model(
        "MiniMax-M2, M2.5, M2.7",
        layer=(GROUPED_QUERY_ATTENTION, ROUTED_EXPERTS),
        fields={"expert_width": "intermediate_size", "full_qk_norm": "use_qk_norm = True"},
        derived={**NO_MTP, **W1_W2_W3, "expert_bias": "True", "correction": "''", "engine_float32_router": "True"},
    ),
    "gpt_oss": Model(
        "GPT-OSS",
        layer=(GROUPED_QUERY_ATTENTION, ALTERNATING_EXPERTS),
        fields={"expert_width": "intermediate_size", "attention_bias": "attention_bias = True"},
        derived={
            **NO_MTP,
            "sparse": "True",
            "out_bias": "attention_bias",
            "sinks": "True",
            "router": "'router'",
            "router_bias": "True",
            "engine_attn": "'attn'",
            "engine_embedding": "'embedding'",
        },
    ),
    "mimo": Model(
        "MiMo-7B",
        layer=(GROUPED_QUERY_ATTENTION, DENSE_MLP),
        mtp=(MULTI_TOKEN_PREDICTION_SWAPPED,),
        fields={**HEADS_SHARE_HIDDEN, "attention_bias": "attention_bias = True"},
        drafts="own list",
    ),
    "mimo_v2_flash": Model(
        "MiMo-V2-Flash",
        layer=(GROUPED_QUERY_ATTENTION, DENSE_MLP, ROUTED_EXPERTS),
        fields={
            "window_layers": "hybrid_layer_pattern",
            "sparse_layers": "moe_layer_freq",
            "full_kv_heads": "num_key_value_heads",
            "window_kv_heads": "swa_num_key_value_heads = 2 * full_kv_heads",
            "window_head": "swa_head_dim = head",
            "window_value": "swa_v_head_dim = value",
            "window_sinks": "add_swa_attention_sink_bias = True",
            "full_sinks": "add_full_attention_sink_bias = False",
        },
        derived={
            **NO_MTP,
            "windowed": "layer_kinds[l] == 'sliding_attention' if layer_kinds else window_layers[l] == 1",
            "attention": "'window_attention' if windowed else 'attention'",
            "kv_heads": "window_kv_heads if windowed else full_kv_heads",
            "own_value": "True",
            "sinks": "window_sinks if windowed else full_sinks",
            "sinks_name": "'attention_sink_bias'",
            "sparse": "mlp_kinds[l] == 'sparse' if mlp_kinds else sparse_layers[l] == 1",
            "expert_bias": "True",
            "float32_router": "True",
        },
        refused={
            "attention_bias": "heads of two sizes with biases",
            "window_head != head or window_value != value": "window attention with heads of another size",
        },
    ),
    "nemotron_h": Model(
        "Nemotron-H, Nemotron 3 Nano",
        layer=(MAMBA, GROUPED_QUERY_ATTENTION, DENSE_MLP, UNGATED_EXPERTS, SHARED_EXPERT),
        fields={
            "layers": "num_hidden_layers = len(kinds if kinds else pattern)",
            "kinds": "layers_block_type = None",
            "pattern": "hybrid_override_pattern",
            "conv_bias": "use_conv_bias = True",
            "projection_bias": "use_bias = False",
            "latent_experts": "moe_latent_size = None",
        },
        derived={
            **NO_MTP,
            "kind": "kinds[l] if kinds else pattern[l]",
            "recurrent": "kind in ('M', 'mamba', 'linear_attention')",
            "attends": "kind in ('*', 'attention', 'full_attention')",
            "dense": "kind in ('-', 'mlp')",
            "sparse": "kind in ('E', 'moe')",
            "gated": "False",
            "expert_bias": "True",
            "float32_router": "True",
            "shared_width": "shared_expert_width",
            "trunk": "'backbone'",
            "embedding": "'embeddings'",
            "final_norm": "'norm_f'",
            "trained_final_norm": "'final_norm'",
            "input_norm": "'norm'",
            "mlp_norm": "'norm'",
            "attn": "'mixer'",
            "mlp": "'mixer'",
        },
        refused={
            "projection_bias or mlp_bias or attention_bias": "projections with biases",
            "latent_experts": "experts in a latent space",
        },
    ),
    "gemma3_text": Model(
        "Gemma 3 (text)",
        layer=(GROUPED_QUERY_ATTENTION, DENSE_MLP, POST_NORMS),
        fields={"tied": "tie_word_embeddings = True"},
        derived={
            **NO_MTP,
            "qk_norm": "True",
            "out_bias": "attention_bias",
            "mlp_norm": "'pre_feedforward_layernorm'",
            "attention_post_norm": "'post_attention_layernorm'",
            "mlp_post_norm": "'post_feedforward_layernorm'",
            "trained_attention_post_norm": "'self_attention.linear_proj.post_layernorm'",
            "trained_mlp_post_norm": "'mlp.linear_fc2.post_layernorm'",
        },
    ),
}

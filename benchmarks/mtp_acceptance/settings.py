# SPDX-License-Identifier: Apache-2.0
"""What is run: the models, sizes and seeds, as plain data that every process gets."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

# Twice an expert's width equals the hidden size: no reader can tell a layout from a shape.
_COMMON: dict[str, Any] = {
    "vocab_size": 300,  # neither side's padded size
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "intermediate_size": 256,
    "moe_intermediate_size": 64,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "routed_scaling_factor": 1.5,
    "norm_topk_prob": True,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 1,
    "torch_dtype": "float32",
}
MODELS: dict[str, dict[str, Any]] = {
    "glm-4.5-like": {
        **_COMMON,
        "model_type": "glm4_moe",
        "architectures": ["Glm4MoeForCausalLM"],
        "num_key_value_heads": 2,
        "head_dim": 32,
        "use_qk_norm": True,
        "attention_bias": True,
        "partial_rotary_factor": 0.5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    },
    "glm-4.7-flash-like": {
        **_COMMON,
        "model_type": "glm4_moe_lite",
        "architectures": ["Glm4MoeLiteForCausalLM"],
        "num_key_value_heads": 4,
        "q_lora_rank": 48,
        "kv_lora_rank": 512,  # with rope 64 the one size that vLLM's attention on a CPU takes
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 64,
        "v_head_dim": 32,
        "attention_bias": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
}


@dataclass(frozen=True)
class Settings:
    """One run.

    Attributes
    ----------
    model : a key of `MODELS`
    experts : "grouped" (as MindSpeed's and Megatron's legacy grouped experts lie) or "sequential"
    language : a key of `language.LANGUAGES`
    topology : "tp2-ep2-sp" or "ep2", a key of `megatron_models.TOPOLOGIES`
    rounds, steps : syncs, and steps of training before each
    scenarios : names of `scenarios.SCENARIOS`; () for all that fit the storage of experts
    """

    model: str = "glm-4.5-like"
    experts: str = "grouped"
    language: str = "hard"
    topology: str = "tp2-ep2-sp"
    rounds: int = 5
    steps: int = 80
    seed: int = 0
    prompts: int = 16
    prompt_length: int = 10
    new_tokens: int = 40
    probes: int = 160
    scenarios: tuple[str, ...] = ()

    @property
    def config(self) -> dict[str, Any]:
        return MODELS[self.model]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Settings:
        fields = json.loads(text)
        return Settings(**{**fields, "scenarios": tuple(fields["scenarios"])})

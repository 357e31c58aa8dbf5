# SPDX-License-Identifier: Apache-2.0
"""The tables against transformers' own classes: names and shapes of live modules, and of what they save."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import layout_kernels as lk

pytestmark = pytest.mark.peers

COMMON = {"vocab_size": 96, "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 64}
GROUPED = {**COMMON, "num_key_value_heads": 2, "head_dim": 16}
LATENT = {**COMMON, "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 20, "qk_nope_head_dim": 12}
LATENT |= {"qk_rope_head_dim": 4, "v_head_dim": 10}
QWEN_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "intermediate_size": 48}
GLM_EXPERTS = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "intermediate_size": 48}
GLM_EXPERTS |= {"n_shared_experts": 2, "num_hidden_layers": 3}

MODELS = {
    "qwen3": ("Qwen3", {**GROUPED, "intermediate_size": 48, "num_hidden_layers": 2}),
    "qwen3 tied, biases": (
        "Qwen3",
        {**GROUPED, "intermediate_size": 48, "num_hidden_layers": 1, "tie_word_embeddings": True}
        | {"attention_bias": True},
    ),
    "qwen3 square": ("Qwen3", {**GROUPED, "intermediate_size": 32, "num_hidden_layers": 1, "num_key_value_heads": 4}),
    "qwen3_moe": ("Qwen3Moe", {**GROUPED, **QWEN_EXPERTS, "num_hidden_layers": 2}),
    "qwen3_moe mixed": ("Qwen3Moe", {**GROUPED, **QWEN_EXPERTS, "num_hidden_layers": 4, "mlp_only_layers": [1]}),
    "qwen3_moe every second": (
        "Qwen3Moe",
        {**GROUPED, **QWEN_EXPERTS, "num_hidden_layers": 4} | {"decoder_sparse_step": 2},
    ),
    "qwen3_moe square": ("Qwen3Moe", {**GROUPED, **QWEN_EXPERTS, "num_hidden_layers": 1, "moe_intermediate_size": 32}),
    "glm4_moe": ("Glm4Moe", {**GROUPED, **GLM_EXPERTS, "first_k_dense_replace": 1, "use_qk_norm": True}),
    "glm4_moe biases": (
        "Glm4Moe",
        {**GROUPED, **GLM_EXPERTS, "first_k_dense_replace": 2, "attention_bias": True, "num_nextn_predict_layers": 1},
    ),
    "glm4_moe_lite": ("Glm4MoeLite", {**LATENT, **GLM_EXPERTS}),
    "glm4_moe_lite mtp": ("Glm4MoeLite", {**LATENT, **GLM_EXPERTS, "num_nextn_predict_layers": 1}),
    "glm4_moe_lite no q rank": ("Glm4MoeLite", {**LATENT, **GLM_EXPERTS, "q_lora_rank": None}),
    "glm4_moe_lite square": ("Glm4MoeLite", {**LATENT, **GLM_EXPERTS, "moe_intermediate_size": 32, "v_head_dim": 16}),
}


def build(name: str) -> Any:
    import transformers

    prefix, fields = MODELS[name]
    config = getattr(transformers, f"{prefix}Config")(**fields)
    return getattr(transformers, f"{prefix}ForCausalLM")(config)


@pytest.mark.parametrize("name", MODELS)
def test_live_modules(name: str) -> None:
    model = build(name)
    specs = lk.family(model.config).specs("transformers")
    assert {key: spec.shape() for key, spec in specs.items()} == {
        key: tuple(tensor.shape) for key, tensor in model.state_dict().items()
    }


@pytest.mark.parametrize("name", MODELS)
def test_saved_checkpoint(name: str, tmp_path: Path) -> None:
    from safetensors import safe_open

    build(name).save_pretrained(tmp_path)
    saved = {}
    for file in tmp_path.glob("*.safetensors"):
        with safe_open(file, "pt") as tensors:
            saved |= {key: tuple(tensors.get_slice(key).get_shape()) for key in tensors.keys()}  # noqa: SIM118
    family = lk.family(tmp_path)
    assert family.model_type == json.loads((tmp_path / "config.json").read_text())["model_type"]
    assert {key: spec.shape() for key, spec in family.specs("hf", mtp="none").items()} == saved


@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith("glm")])
def test_dtypes_that_transformers_fixes(name: str, tmp_path: Path) -> None:
    """float32 in a model of bfloat16: what the tables say is what transformers loads."""
    import torch

    model = build(name)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, dtype=torch.bfloat16).state_dict()
    specs = lk.family(model.config).specs("transformers", dtype=torch.bfloat16)
    assert {key: spec.dtype for key, spec in specs.items()} == {key: tensor.dtype for key, tensor in loaded.items()}

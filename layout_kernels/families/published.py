# SPDX-License-Identifier: Apache-2.0
"""Published sizes of well-known models, and the same models made smaller."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import LayoutError
from .family import family
from .table import choose

# field -> (its multiple, its least value): what tensor parallelism of 4 and tiles of 16 still divide
_STEPS: Mapping[str, tuple[int, int]] = {
    "vocab_size": (16, 512),
    "hidden_size": (128, 128),
    "num_hidden_layers": (1, 2),
    "intermediate_size": (64, 64),
    "moe_intermediate_size": (64, 64),
    "shared_expert_intermediate_size": (64, 64),
    "n_routed_experts": (8, 8),
    "num_experts": (8, 8),
    "num_local_experts": (8, 8),
    "num_key_value_heads": (4, 4),
    "head_dim": (32, 32),
    "q_lora_rank": (64, 64),
    "kv_lora_rank": (64, 64),
    "qk_nope_head_dim": (32, 32),
    "qk_rope_head_dim": (32, 32),
    "v_head_dim": (32, 32),
}


def published(name: str, scale: float | None = None) -> dict[str, Any]:
    """The sizes of a published model as the fields of a Hugging Face config.

    Parameters
    ----------
    name : str
        Such as ``"glm-4.7-flash"`` or ``"qwen3-30b-a3b"``; an unknown one gets an error that lists them all.
    scale : float, optional
        Shrink the model to about ``1 / scale`` of its parameters. Layers, experts, heads, widths and vocabulary are all
        divided by one factor, found by halving, and rounded to multiples that tensor parallelism of 4 and tiles of 16
        still divide. Query heads stay in proportion to kv heads, dense leading layers stay, and widths are
        moved so that none of the MLP's matrices is square.

    Raises
    ------
    LayoutError
        Where the name is not known, or the model cannot be made that small.
    """
    config = dict(choose("model", name, _models()))
    if scale is None or scale == 1:
        return config
    if not scale >= 1:
        raise LayoutError(f"scale is {scale}: a number of at least 1 was wanted")
    wanted = parameters(config) / scale
    low, high = 0.0, math.log(max(value for value in config.values() if isinstance(value, int)))
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if parameters(_shrunk(config, math.exp(middle))) > wanted else (low, middle)
    small = _shrunk(config, math.exp(high))
    if parameters(small) > 2 * wanted:
        least = parameters(small)
        raise LayoutError(f"model {name!r} cannot be shrunk by {scale}: its smallest has {least} parameters")
    return small


def parameters(config: Mapping[str, Any]) -> int:
    """How many numbers a model holds, its layers of multi-token prediction among them."""
    model = family(config)
    experts = "stacked" if "stacked" in model.storages else "te"
    specs = model.specs("megatron", spec="local", experts=experts, vocab_multiple=1)
    return sum(math.prod(spec.shape()) for spec in specs.values())


@lru_cache(maxsize=1)
def _models() -> Mapping[str, Mapping[str, Any]]:
    text = (Path(__file__).parent / "models.json").read_text(encoding="utf-8")
    models: dict[str, dict[str, Any]] = json.loads(text)
    return models


def _shrunk(config: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """Every size divided by one factor."""
    small = dict(config)
    if "kv_lora_rank" not in config:
        small["head_dim"] = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    for key, (multiple, least) in _STEPS.items():
        if small.get(key):
            small[key] = min(small[key], max(least, round(small[key] / factor / multiple) * multiple))
    ratio = config["num_attention_heads"] // config["num_key_value_heads"]
    small["num_attention_heads"] = small["num_key_value_heads"] * ratio
    # One sparse layer at least behind the dense ones, and as many experts as a token chooses.
    small["num_hidden_layers"] = max(small["num_hidden_layers"], config.get("first_k_dense_replace", 0) + 1)
    for key in {"n_routed_experts", "num_experts", "num_local_experts"} & small.keys():
        small[key] = max(small[key], config["num_experts_per_tok"])
    for key in ("intermediate_size", "moe_intermediate_size"):
        while key in small and small["hidden_size"] in (small[key], 2 * small[key]):
            small[key] += 64
    return small

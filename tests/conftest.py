# SPDX-License-Identifier: Apache-2.0
"""What all tests share: the case list, the backends that run here, and buffers that notice a stray write."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--peers", action="store_true", help="also run the tests against real Megatron-Core and transformers"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--peers"):
        return
    skip = pytest.mark.skip(reason="a test against real Megatron-Core and transformers: --peers runs it")
    for item in items:
        if "peers" in item.keywords:
            item.add_marker(skip)

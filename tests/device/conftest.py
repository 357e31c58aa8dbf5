# SPDX-License-Identifier: Apache-2.0
"""Kernels run in Triton's interpreter here, on CPU tensors; where Triton is not installed, nothing here runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are first imported

from layout_kernels.backends.triton import installed

if installed():
    from triton.runtime import interpreter

    _patch_lang_tensor = interpreter._patch_lang_tensor

    def _patched(tensor: Any, scope: Any) -> None:
        """The interpreter's scalars are arrays of one element, which numpy 2.4 no longer takes for numbers."""
        _patch_lang_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = _patched


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if installed():
        return
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.skip(reason="triton is not installed"))

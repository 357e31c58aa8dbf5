# SPDX-License-Identifier: Apache-2.0
"""Kernels run in Triton's interpreter here, on CPU tensors; where Triton is not installed, nothing here runs."""

from __future__ import annotations

import os
from typing import Any

import pytest

os.environ["TRITON_INTERPRET"] = "1"  # read when kernels are first imported

from layout_kernels.backends.triton import DISTRIBUTIONS, _installed  # noqa: E402

if any(map(_installed, DISTRIBUTIONS)):
    from triton.runtime import interpreter

    _patch_lang_tensor = interpreter._patch_lang_tensor

    def _patched(tensor: Any, scope: Any) -> None:
        """Scalars of the interpreter are arrays of one element, which numpy 2.4 no longer takes for numbers."""
        _patch_lang_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = _patched

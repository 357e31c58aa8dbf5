# SPDX-License-Identifier: Apache-2.0
"""What the tests of binding share: one small plan, its tensors, and the proof that a refusal writes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import layout_kernels as lk
from layout_kernels import Spec
from layout_kernels.testing import assert_same_bytes

DIMS = {"o": 4, "h": 4}
Tensors = dict[Any, Any]


def plan_of(source: str = "o h", target: str = "h o", **fields: Any) -> lk.CopyPlan:
    return lk.compile({"model.weight": Spec(source, dims=DIMS)}, {"engine.weight": Spec(target, dims=DIMS, **fields)})


def refused(plan: lk.CopyPlan, sources: Tensors, targets: Tensors, *words: str, backend: str = "auto") -> None:
    """`bind` and `run` raise, naming all words, and no byte of any target has changed."""
    real = {key: t for key, t in targets.items() if isinstance(t, torch.Tensor) and not t.is_meta and not t.is_sparse}
    before = {key: tensor.clone() for key, tensor in real.items()}
    for act in (plan.bind, plan.run):
        with pytest.raises(lk.LayoutError) as error:
            act(sources, targets, backend)
        for word in words:
            assert word in str(error.value), f"{word!r} is not in: {error.value}"
    for key, tensor in real.items():
        assert_same_bytes(tensor, before[key], key)


def pair(dtype: torch.dtype = torch.int32) -> tuple[Tensors, Tensors]:
    return {"model.weight": torch.arange(16).reshape(4, 4).to(dtype)}, {
        "engine.weight": torch.full((4, 4), 9, dtype=dtype)
    }

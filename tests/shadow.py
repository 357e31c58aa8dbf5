# SPDX-License-Identifier: Apache-2.0
"""Cases and buffers for all backends: one list, read from ``layouts.json``, and memory that notices a stray write."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import layout_kernels as lk

BACKENDS = [name for name, about in lk.backends().items() if not about.startswith("unavailable")]
POISON = 0x5A
GUARD = 256  # bytes before and behind


@dataclass(frozen=True)
class Case:
    name: str
    sources: dict[str, lk.Spec]
    targets: dict[str, lk.Spec]
    values: dict[str, list[int]] = field(repr=False)
    shapes: dict[str, tuple[int, ...]] = field(repr=False)


def _spec(tensor: dict[str, Any], dims: dict[str, Any]) -> lk.Spec:
    data = {"layout": tensor["layout"], "of": "case", "dims": tensor.get("dims", dims), "mesh": tensor["mesh"]}
    padding = {"pad": "keep", "rpad": "keep"}
    return lk.Spec.from_json(data | {"at": tensor["at"], "declared": tensor["declared"], "padding": padding})


def load_cases() -> list[Case]:
    cases = []
    for data in json.loads((Path(__file__).parent / "layouts.json").read_text()):
        sides = [{k: _spec(t, data["dims"]) for k, t in data[side].items()} for side in ("sources", "targets")]
        tensors = {(side, k): t for side in ("sources", "targets") for k, t in data[side].items()}
        values = {key: t["values"] for key, t in tensors.items()}
        cases.append(Case(data["name"], *sides, values, {key: tuple(t["shape"]) for key, t in tensors.items()}))
    return cases


CASES = load_cases()


@dataclass
class Guarded:
    """A tensor inside a poisoned buffer: contiguous, shifted by some elements, or strided with holes."""

    tensor: torch.Tensor
    buffer: torch.Tensor
    before: torch.Tensor
    mask: torch.Tensor

    def assert_untouched(self, name: object) -> None:
        """No byte outside the tensor has changed."""
        changed = (self.buffer != self.before) & ~self.mask
        assert not changed.any(), f"{name}: a byte outside the tensor was written, at {int(changed.nonzero()[0])}"


def guarded(shape: tuple[int, ...], dtype: torch.dtype, *, shift: int = 0, holes: bool = False) -> Guarded:
    """A poisoned tensor; ``shift`` elements off alignment; ``holes`` gives every dimension a stride of its own."""
    extents = [extent + 1 if holes else extent for extent in shape]
    size = dtype.itemsize
    nbytes = (math.prod(extents) + shift) * size
    buffer = torch.full((nbytes + 2 * GUARD,), POISON, dtype=torch.uint8)
    flat = buffer[GUARD + shift * size : GUARD + nbytes].view(dtype)
    places = range(len(extents))
    if holes:  # the fastest dimension in memory is the first
        strides = [math.prod(extents[:place]) for place in places]
    else:
        strides = [math.prod(extents[place + 1 :]) for place in places]
    tensor = flat.as_strided(shape, strides, flat.storage_offset())
    before = buffer.clone()
    mask = torch.zeros(len(buffer), dtype=torch.bool)
    _mark(tensor, buffer, mask)
    return Guarded(tensor, buffer, before, mask)


def _mark(tensor: torch.Tensor, buffer: torch.Tensor, mask: torch.Tensor) -> None:
    size = tensor.element_size()
    start = tensor.data_ptr() - buffer.data_ptr()
    offsets = torch.zeros((), dtype=torch.int64)
    for stride, extent in zip(tensor.stride(), tensor.shape, strict=True):
        offsets = offsets.unsqueeze(-1) + torch.arange(extent) * stride
    flat = start + offsets.reshape(-1, 1) * size + torch.arange(size)
    mask[flat.reshape(-1)] = True


def filled(values: list[int], shape: tuple[int, ...], dtype: torch.dtype, **where: Any) -> Guarded:
    """A guarded tensor with these values; -1 leaves the poison."""
    held = guarded(shape, dtype, **where)
    wanted = torch.tensor(values, dtype=torch.int64)
    new = wanted.to(dtype).reshape(shape)
    held.tensor.copy_(torch.where((wanted >= 0).reshape(shape), new, held.tensor))
    held.before.copy_(held.buffer)
    return held

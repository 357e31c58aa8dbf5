# SPDX-License-Identifier: Apache-2.0
"""The specification of a backend, in plain torch: block after block, slow and obvious."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..table import Table
from .elements import HostReplay, Tensors

MANTISSA = {torch.bfloat16: 7, torch.float16: 10, torch.float32: 23}
INTEGER = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float32: torch.int32}


class Reference:
    """Runs on any device that torch has."""

    name = "reference"
    devices: tuple[str, ...] = ("cpu", "cuda", "npu")
    about = "plain torch on any device; slow, the specification of the others"

    def missing(self) -> str | None:
        """Never missing."""
        return None

    def prepare(self, table: Table, sources: Tensors, targets: Tensors) -> HostReplay:
        """Nothing to prepare."""

        def run() -> None:
            for row in zip(*(column.tolist() for column in table.columns()), strict=True):
                shape, source, target, source_offset, target_offset = row
                digits = table.shapes[shape]
                box = _box(targets[target], [(extent, step) for extent, _, step in digits], target_offset)
                if source < 0:
                    box.zero_()
                else:
                    held = _box(sources[source], [(extent, step) for extent, step, _ in digits], source_offset)
                    box.copy_(cast(held, box.dtype))

        return HostReplay(run, launches=len(table), table_nbytes=0)


def _box(tensor: torch.Tensor | None, digits: Sequence[tuple[int, int]], offset: int) -> torch.Tensor:
    assert tensor is not None, "the table reads a tensor that was not bound"
    extents, strides = [extent for extent, _ in digits], [stride for _, stride in digits]
    return tensor.as_strided(extents, strides, tensor.storage_offset() + offset)


def cast(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Values in another dtype: rounded once, to nearest even; a NaN keeps its sign and leading bits, made quiet."""
    if values.dtype == dtype:
        return values
    result = values.to(dtype)
    wrong = torch.isnan(values)
    if wrong.any():
        result = torch.where(wrong, _quiet_nan(values, dtype), result)
    return result


def _quiet_nan(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    bits = values.contiguous().view(INTEGER[values.dtype]).to(torch.int64)
    ours, theirs = MANTISSA[values.dtype], MANTISSA[dtype]
    mantissa = (bits & ((1 << ours) - 1)) << (23 - ours) >> (23 - theirs) | 1 << (theirs - 1)
    exponent = (1 << (dtype.itemsize * 8 - 1 - theirs)) - 1 << theirs
    low = mantissa | exponent
    return torch.where(bits < 0, low - (1 << (dtype.itemsize * 8 - 1)), low).to(INTEGER[dtype]).view(dtype)

# SPDX-License-Identifier: Apache-2.0
"""What every compiled backend turns a block table into first: sizes of elements, casts and byte addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..table import Integers, Table

Tensors = Sequence[torch.Tensor | None]
Kind = tuple[int, int, int]  # bytes of a source element, of a target element, cast

FLOATS = {torch.bfloat16: 0, torch.float16: 1, torch.float32: 2}  # a cast is 1 + 3 * from + to; 0 moves bits unchanged


@dataclass(frozen=True)
class HostReplay:
    """What a backend on the CPU prepares; see `layout_kernels.backends.Prepared`."""

    run: Callable[[], None]
    launches: int
    table_nbytes: int

    def __call__(self) -> None:
        self.run()


def kinds(table: Table, sources: Tensors, targets: Tensors) -> tuple[list[Kind], Integers]:
    """The kinds of elements that occur, and each block's."""
    known: dict[Kind, int] = {}
    pairs = np.stack([table.source, table.target], axis=1)
    distinct, inverse = np.unique(pairs, axis=0, return_inverse=True)
    numbers = []
    for source, target in distinct.tolist():
        to = targets[target]
        assert to is not None, "the table writes a tensor that was not bound"
        held = sources[source] if source >= 0 else None
        numbers.append(known.setdefault(_kind(to.dtype if held is None else held.dtype, to.dtype), len(known)))
    return list(known) or [(1, 1, 0)], np.array(numbers, dtype=np.int64)[inverse.reshape(-1)]


def _kind(held: torch.dtype, wanted: torch.dtype) -> Kind:
    cast = 0 if held == wanted else 1 + 3 * FLOATS[held] + FLOATS[wanted]
    return held.itemsize, wanted.itemsize, cast


def addresses(tensors: Tensors, numbers: Integers, offsets: Integers) -> Integers:
    """Byte addresses; 0 for the source of a zero fill."""
    bases = np.array([0 if tensor is None else tensor.data_ptr() for tensor in tensors] + [0], dtype=np.int64)
    sizes = np.array([0 if tensor is None else tensor.element_size() for tensor in tensors] + [0], dtype=np.int64)
    return bases[numbers] + offsets * sizes[numbers]

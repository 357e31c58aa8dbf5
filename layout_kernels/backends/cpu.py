# SPDX-License-Identifier: Apache-2.0
"""The C++ executor: byte strides and addresses out of the block table, and one call a run."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ..errors import LayoutError
from ..table import Shape, Table

THREADS = "LAYOUT_KERNELS_THREADS"
FLOATS = {torch.bfloat16: 0, torch.float16: 1, torch.float32: 2}
Kind = tuple[int, int, int]  # bytes of a source element, of a target element, cast


class Cpu:
    """Runs on the CPU, in C++."""

    name = "cpu"
    devices: tuple[str, ...] = ("cpu",)
    about = "C++ on the CPU"

    def missing(self) -> str | None:
        """Why the extension module cannot be used, if it cannot."""
        try:
            _core()
        except ImportError as error:
            return f"its extension module is not built ({error})"
        return None

    def launches(self, table: Table) -> int:
        """One for the whole table."""
        return 1 if len(table) else 0

    def prepare(
        self, table: Table, sources: Sequence[torch.Tensor | None], targets: Sequence[torch.Tensor | None]
    ) -> Callable[[], None]:
        """Resolve addresses and hand the table to the executor."""
        kinds, kind = _kinds(table, sources, targets)
        pairs = table.shape * len(kinds) + kind
        used, shape = np.unique(pairs, return_inverse=True)
        shapes = [(table.shapes[pair // len(kinds)], kinds[pair % len(kinds)]) for pair in used.tolist()]
        executor = _core().Executor(
            *_strides(shapes),
            element=np.array([size for _, (_, size, _) in shapes], dtype=np.int32),
            cast=np.array([cast for _, (_, _, cast) in shapes], dtype=np.int32),
            shape=shape.astype(np.int32),
            source=_addresses(sources, table.source, table.source_offset),
            target=_addresses(targets, table.target, table.target_offset),
            threads=threads(),
        )
        return executor.run  # type: ignore[no-any-return]


def _core() -> Any:
    return importlib.import_module("layout_kernels._core")


def threads() -> int:
    """How many threads a run uses: the variable LAYOUT_KERNELS_THREADS, or else torch's own number.

    Raises
    ------
    LayoutError
        Where the variable holds no number of at least one.
    """
    said = os.environ.get(THREADS)
    if said is None:
        return torch.get_num_threads()
    if not said.isdecimal() or int(said) < 1:
        raise LayoutError(f"{THREADS} is {said!r}: a number of threads, at least 1, was wanted")
    return int(said)


def _kinds(
    table: Table, sources: Sequence[torch.Tensor | None], targets: Sequence[torch.Tensor | None]
) -> tuple[list[Kind], Any]:
    """The kinds of elements that occur, and each block's: sizes and cast."""
    known: dict[Kind, int] = {}
    dtypes = [[None if tensor is None else tensor.dtype for tensor in side] for side in (sources, targets)]
    pairs = np.stack([table.source, table.target], axis=1)
    distinct, inverse = np.unique(pairs, axis=0, return_inverse=True)
    numbers = []
    for source, target in distinct.tolist():
        to = dtypes[1][target]
        assert to is not None
        held = dtypes[0][source] if source >= 0 else None
        kind = (to if held is None else held).itemsize, to.itemsize, 0
        if held is not None and held != to:
            kind = held.itemsize, to.itemsize, 1 + 3 * FLOATS[held] + FLOATS[to]
        numbers.append(known.setdefault(kind, len(known)))
    return list(known) or [(1, 1, 0)], np.array(numbers, dtype=np.int64)[inverse.reshape(-1)]


def _strides(shapes: Sequence[tuple[Shape, Kind]]) -> tuple[Any, Any, Any]:
    """Extents and byte strides, padded in front with digits of extent one."""
    rank = max((len(shape) for shape, _ in shapes), default=0)
    arrays = np.zeros((3, len(shapes), max(rank, 1)), dtype=np.int64)
    arrays[0] = 1
    for row, (shape, (ours, theirs, _)) in enumerate(shapes):
        for place, (extent, source, target) in enumerate(shape, start=arrays.shape[2] - len(shape)):
            arrays[:, row, place] = extent, source * ours, target * theirs
    return arrays[0], arrays[1], arrays[2]


def _addresses(tensors: Sequence[torch.Tensor | None], numbers: Any, offsets: Any) -> Any:
    """Byte addresses; 0 for the source of a zero fill."""
    bases = np.array([0 if tensor is None else tensor.data_ptr() for tensor in tensors] + [0], dtype=np.int64)
    sizes = np.array([0 if tensor is None else tensor.element_size() for tensor in tensors] + [0], dtype=np.int64)
    return (bases[numbers] + offsets * sizes[numbers]).astype(np.uint64)

# SPDX-License-Identifier: Apache-2.0
"""The C++ executor: byte strides and addresses out of the block table, and one call a run."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..errors import LayoutError
from ..table import Shape, Table
from .elements import HostReplay, Kind, Tensors, addresses, kinds

THREADS = "LAYOUT_KERNELS_THREADS"
BLOCK_BYTES = 24  # of a block: its shape and two addresses


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

    def prepare(self, table: Table, sources: Tensors, targets: Tensors) -> HostReplay:
        """Resolve addresses and hand the table to the executor."""
        known, kind = kinds(table, sources, targets)
        used, shape = np.unique(table.shape * len(known) + kind, return_inverse=True)
        shapes = [(table.shapes[pair // len(known)], known[pair % len(known)]) for pair in used.tolist()]
        executor = _core().Executor(
            *_strides(shapes),
            element=np.array([size for _, (_, size, _) in shapes], dtype=np.int32),
            cast=np.array([cast for _, (_, _, cast) in shapes], dtype=np.int32),
            shape=shape.astype(np.int32),
            source=addresses(sources, table.source, table.source_offset).astype(np.uint64),
            target=addresses(targets, table.target, table.target_offset).astype(np.uint64),
            threads=threads(),
        )
        return HostReplay(executor.run, launches=1 if len(table) else 0, table_nbytes=BLOCK_BYTES * len(table))


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


def _strides(shapes: Sequence[tuple[Shape, Kind]]) -> tuple[Any, Any, Any]:
    """Extents and byte strides, padded in front with digits of extent one."""
    rank = max((len(shape) for shape, _ in shapes), default=0)
    arrays = np.zeros((3, len(shapes), max(rank, 1)), dtype=np.int64)
    arrays[0] = 1
    for row, (shape, (ours, theirs, _)) in enumerate(shapes):
        for place, (extent, source, target) in enumerate(shape, start=arrays.shape[2] - len(shape)):
            arrays[:, row, place] = extent, source * ours, target * theirs
    return arrays[0], arrays[1], arrays[2]

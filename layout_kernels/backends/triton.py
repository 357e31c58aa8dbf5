# SPDX-License-Identifier: Apache-2.0
"""The backend for GPUs: one launch a variant of kernel, however many tensors, over tables that are uploaded once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.metadata import distributions
from typing import Any

import numpy as np
import torch

from ..errors import LayoutError
from ..table import Integers, Table
from .device_table import DeviceTable, Recipe, Rows, Transpose, pack, recipes
from .elements import Kind, Tensors, addresses, kinds
from .triton_variants import WARPS, Variant, variant_of

DISTRIBUTIONS = ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-rocm")
Choice = tuple[Integers, list[int], int]  # blocks, their shape as a kernel reads it, tiles of each

INTERPRETED_PROGRAMS = 3  # few enough that each one takes several tiles


class Triton:
    """Runs on CUDA and ROCm; where ``TRITON_INTERPRET=1``, in Triton's interpreter on CPU tensors, for tests."""

    name = "triton"
    about = "Triton on CUDA and ROCm"

    @property
    def devices(self) -> tuple[str, ...]:
        """The interpreter reads addresses of the host, a compiled kernel those of its device."""
        return ("cpu",) if interpreting() else ("cuda",)

    def missing(self) -> str | None:
        """Why no kernel can run here, if none can."""
        if not installed():
            return "triton is not installed"
        if not interpreting() and not torch.cuda.is_available():
            return "there is no CUDA or ROCm device (TRITON_INTERPRET=1 interprets it on the CPU)"
        return None

    def launches(self, table: Table) -> int:
        """One for each variant of kernel that tensors of one 16-bit dtype would need, were all addresses aligned."""
        zeros = np.zeros(len(table), dtype=np.int64)
        return len(device_tables(table, [(2, 2, 0)], zeros, zeros, zeros))

    def prepare(self, table: Table, sources: Tensors, targets: Tensors) -> Replay:
        """Choose kernels, upload the tables, compile."""
        ours = addresses(sources, table.source, table.source_offset)
        theirs = addresses(targets, table.target, table.target_offset)
        device = _only_device([tensor for tensor in (*sources, *targets) if tensor is not None])
        return Replay(device_tables(table, *kinds(table, sources, targets), ours, theirs), device)


def interpreting() -> bool:
    """Whether kernels run in Triton's interpreter."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def installed() -> bool:
    """Whether Triton is, asked of packages: a folder named triton on the path would pass for a module."""
    names = {distribution.metadata["Name"] for distribution in distributions()}
    return not names.isdisjoint(DISTRIBUTIONS)


def _only_device(tensors: Sequence[torch.Tensor]) -> torch.device:
    devices = sorted({str(tensor.device) for tensor in tensors})
    if len(devices) > 1:
        raise LayoutError(f"one run is on one device, but the tensors are on {', '.join(devices)}")
    return torch.device(devices[0] if devices else "cpu")


def device_tables(
    table: Table, known: Sequence[Kind], kind: Integers, source: Integers, target: Integers
) -> dict[Variant, DeviceTable]:
    """For each variant of kernel that is needed, the blocks that it takes, by their kinds and addresses."""
    if not len(table):
        return {}
    asked = (table.shape * len(known) + kind) * 2 + (table.source < 0)
    used, count = np.unique(asked, return_counts=True)
    alike = np.split(np.argsort(asked, kind="stable"), np.cumsum(count)[:-1])
    choices: dict[Variant, list[Choice]] = {}
    for code, blocks in zip(used.tolist(), alike, strict=True):
        shape, of = table.shapes[code // 2 // len(known)], known[code // 2 % len(known)]
        for recipe, width, some in _by_recipe(recipes(shape, of, bool(code % 2)), blocks, source, target):
            variant = variant_of(recipe, width, of[2])
            choices.setdefault(variant, []).append((some, *variant.shape(recipe)))
    return {variant: _packed(parts, source, target) for variant, parts in choices.items()}


def _by_recipe(
    known: tuple[Rows, Transpose | None] | None, blocks: Integers, source: Integers, target: Integers
) -> Iterator[tuple[Recipe, int, Integers]]:
    """A transpose where addresses allow it, else rows, which move less than an element at a time if they must."""
    if known is None:
        return
    rows, transpose = known
    if transpose is not None:
        fits = (source[blocks] % transpose.ours == 0) & (target[blocks] % transpose.theirs == 0)
        yield from _by_width(transpose, blocks[fits], source, target)
        blocks = blocks[~fits]
    yield from _by_width(rows, blocks, source, target)


def _by_width(
    recipe: Recipe, blocks: Integers, source: Integers, target: Integers
) -> Iterator[tuple[Recipe, int, Integers]]:
    """The widest access that the steps of a shape and the addresses of its blocks allow."""
    odd = (source[blocks] % recipe.ours != 0) | (target[blocks] % recipe.theirs != 0)
    if odd.any():
        where = int(target[blocks[odd]][0])
        raise LayoutError(
            f"a cast of {recipe.ours} bytes to {recipe.theirs} at address {where:#x}: its elements are not aligned"
        )
    start = source[blocks] // recipe.ours | target[blocks] // recipe.theirs | recipe.width
    width = start & -start
    for one in np.unique(width).tolist():
        yield recipe, one, blocks[width == one]


def _packed(choices: Sequence[Choice], source: Integers, target: Integers) -> DeviceTable:
    """Blocks in the order of the targets, whatever their shapes."""
    blocks = np.concatenate([some for some, _, _ in choices])
    shape = np.repeat(np.arange(len(choices)), [len(some) for some, _, _ in choices])
    order = np.argsort(blocks)
    blocks, shape = blocks[order], shape[order]
    return pack(source[blocks], target[blocks], shape, [one for _, one, _ in choices], [n for _, _, n in choices])


class Replay:
    """The tables on their device, and the launches over them. Calling it starts them on the current stream.

    Attributes
    ----------
    launches : int
        How many kernels a call starts.
    table_nbytes : int
        What the tables take on the device.
    """

    def __init__(self, tables: Mapping[Variant, DeviceTable], device: torch.device) -> None:
        self.launches = len(tables)
        self.table_nbytes = sum(table.nbytes for table in tables.values())
        self._device = device
        self._ready = [_Launch(variant, table, device) for variant, table in tables.items()]
        with _current(device):
            for launch in self._ready:
                launch.start(0)  # compiles and loads: a capture must find every kernel in its place

    def __call__(self) -> None:
        with _current(self._device):
            for launch in self._ready:
                launch.start(launch.count)


class _Launch:
    """One kernel with all its arguments."""

    def __init__(self, variant: Variant, table: DeviceTable, device: torch.device) -> None:
        from . import triton_kernels

        self.count = len(table.tiles)
        self._kernel = triton_kernels.transposes if variant.transposed else triton_kernels.rows
        self._constants = triton_kernels.constants(variant) | {"num_warps": WARPS}
        if device.type == "cuda" and torch.version.hip is None:
            self._constants["maxnreg"] = variant.registers
        self._grid = (min(self.count, _programs(device, variant)),)
        self._tables = [torch.from_numpy(array).to(device) for array in (table.tiles, table.words)]

    def start(self, count: int) -> None:
        self._kernel[self._grid](*self._tables, count, **self._constants)


def _programs(device: torch.device, variant: Variant) -> int:
    if device.type == "cpu":
        return INTERPRETED_PROGRAMS
    return variant.programs * int(torch.cuda.get_device_properties(device).multi_processor_count)


def _current(device: torch.device) -> AbstractContextManager[Any]:
    """Triton launches on the current device, which need not be that of the tensors."""
    return nullcontext() if device.type == "cpu" else torch.cuda.device(device)

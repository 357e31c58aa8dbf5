# SPDX-License-Identifier: Apache-2.0
"""The backend for Ascend NPUs, by triton-ascend: the same table as for GPUs, tiles as a DMA takes them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch

from ..table import Table
from .device_table import DeviceTable, device_tables
from .elements import Tensors, addresses, kinds
from .recipes import Digit, Recipe, Transpose, length
from .replay import Launch, Replay, only_device, upload
from .triton import INTERPRETED_PROGRAMS, interpreting

TYPES = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

# The launch heuristic: nothing here knows a model, only sizes of elements and lengths of rows.
TILE = 32 * 1024  # bytes: two of them in flight, each once more where it turns, leave a third of the unified buffer
CAST_TILE = 4 * 1024  # elements: a cast holds a dozen numbers of 32 bits for each between its steps
ROW_BYTES = (64, 512, 4096, 32768)  # of a tile of rows, the least that holds one: a DMA takes many short rows at once


@dataclass(frozen=True)
class AscendVariant:
    """One compiled kernel: bytes of an element on both sides, the cast, and elements of a tile's rows and columns."""

    transposed: bool
    ours: int
    theirs: int
    cast: int
    zero: bool
    tile: tuple[int, int]

    def shape(self, recipe: Recipe) -> tuple[list[int], int]:
        """The recipe as its kernel reads it, and its number of tiles."""
        if isinstance(recipe, Transpose):
            (width, _, to), (height, source, _) = recipe.across[0], recipe.down[0]
            around = (*recipe.across[1:], *recipe.down[1:], *recipe.outer)
            return self._numbers((width, height, source // self.ours, to // self.theirs), around)
        run, moved, around = rows_of(recipe.digits)
        columns = run * recipe.ours // self.ours
        return self._numbers((columns, moved[0], moved[1] // self.ours, moved[2] // self.theirs), around)

    def _numbers(self, sides: tuple[int, int, int, int], around: tuple[Digit, ...]) -> tuple[list[int], int]:
        """Of both kernels alike: digits around, columns, rows, a step on either side, then the digits."""
        steps = [(extent, source // self.ours, target // self.theirs) for extent, source, target in around]
        tiles = length(around) * -(-sides[0] // self.tile[1]) * -(-sides[1] // self.tile[0])
        return [len(around), *sides, *(number for digit in steps for number in digit)], tiles


def rows_of(digits: tuple[Digit, ...]) -> tuple[int, Digit, tuple[Digit, ...]]:
    """The run, the longest digit that steps on both sides, which one DMA takes with it, and the digits around."""
    run, *others = digits
    stepping = [digit for digit in others if digit[1] >= run[0] * run[1]]
    longest = max(stepping, key=lambda digit: digit[0], default=(1, 0, 0))
    return run[0], longest, tuple(digit for digit in others if digit is not longest)


def variant_of(recipe: Recipe, width: int, cast: int, zero: bool) -> AscendVariant:
    """The kernel for a recipe whose addresses allow accesses of so many elements."""
    if isinstance(recipe, Transpose):
        area = CAST_TILE if cast else TILE // 2 // recipe.ours
        across = 1 << ((area.bit_length() - 1) // 2)
        return AscendVariant(True, recipe.ours, recipe.theirs, cast, False, (area // across, across))
    size = 1 if cast else min(width, 8)
    ours, theirs = recipe.ours * size, recipe.theirs * size
    row = recipe.digits[0][0] * recipe.ours
    nbytes = next((one for one in ROW_BYTES if one >= row), ROW_BYTES[-1])
    area = CAST_TILE if cast else TILE // ours
    columns = min(nbytes // ours, area)
    return AscendVariant(False, ours, theirs, cast, zero, (area // columns, columns))


class TritonAscend:
    """Runs on Ascend NPUs; where ``TRITON_INTERPRET=1``, in triton-ascend's interpreter on CPU tensors, for tests."""

    name = "triton-ascend"
    about = "triton-ascend on Ascend NPUs"

    @property
    def devices(self) -> tuple[str, ...]:
        """The interpreter reads addresses of the host, a compiled kernel those of its device."""
        return ("cpu",) if interpreting() else ("npu",)

    def missing(self) -> str | None:
        """Why no kernel can run here, if none can."""
        if not installed():
            return "triton-ascend is not installed"
        if not interpreting() and (_npu() is None or not _npu().is_available()):
            return "there is no NPU, or torch_npu was not imported (TRITON_INTERPRET=1 interprets it on the CPU)"
        return None

    def prepare(self, table: Table, sources: Tensors, targets: Tensors) -> Replay:
        """Choose kernels, upload the tables, compile."""
        device = only_device([*sources, *targets])
        base = torch.zeros(64, dtype=torch.int64, device=device)
        start = base.data_ptr()
        ours = addresses(sources, table.source, table.source_offset) - start
        theirs = addresses(targets, table.target, table.target_offset) - start
        ours = np.where(table.source < 0, 0, ours)
        return replay(device_tables(table, *kinds(table, sources, targets), ours, theirs, variant_of), base)


def _npu() -> Any:
    """What torch_npu adds to torch once it is imported."""
    return getattr(torch, "npu", None)


@cache
def installed() -> bool:
    """Whether triton-ascend is, asked of packages: it calls its module triton."""
    try:
        version("triton-ascend")
    except PackageNotFoundError:
        return False
    return True


def replay(tables: Mapping[AscendVariant, DeviceTable], base: torch.Tensor) -> Replay:
    """The launches over these tables, whose offsets are in bytes from a base."""
    launches = [_launch(variant, packed, base) for variant, packed in tables.items()]
    on_device = partial(_npu().device, base.device) if base.device.type == "npu" else nullcontext
    return Replay(launches, list(tables.values()), on_device)


def _launch(variant: AscendVariant, table: DeviceTable, base: torch.Tensor) -> Launch:
    from . import triton_ascend_kernels as kernels

    count = len(table.tiles)
    bases = base.view(TYPES[variant.ours]), base.view(TYPES[variant.theirs])
    programs = min(count, _programs(base.device))
    kernel = kernels.transposes if variant.transposed else kernels.rows
    return Launch(
        kernel, programs, (*bases, *upload(in_elements(variant, table), base.device)), count, constants(variant)
    )


def in_elements(variant: AscendVariant, table: DeviceTable) -> DeviceTable:
    """The table with the offsets of blocks, which were in bytes, as a kernel counts them."""
    blocks = int(table.tiles.max(initial=-1)) + 1
    words = table.words.copy()
    words[0 : 4 * blocks : 4] //= variant.ours
    words[1 : 4 * blocks : 4] //= variant.theirs
    return DeviceTable(table.tiles, words)


def constants(variant: AscendVariant) -> dict[str, Any]:
    """The compile-time arguments of a variant's kernel."""
    rows, columns = variant.tile
    if variant.transposed:
        return {"CAST": variant.cast, "ACROSS": columns, "DOWN": rows}
    return {"CAST": variant.cast, "ZERO": variant.zero, "ROWS": rows, "COLUMNS": columns}


def _programs(device: torch.device) -> int:
    """One for each vector core."""
    if device.type == "cpu":
        return INTERPRETED_PROGRAMS
    from triton.runtime import driver

    return int(driver.active.utils.get_device_properties(device.index or 0)["num_vectorcore"])

# SPDX-License-Identifier: Apache-2.0
"""The backend for GPUs: one launch a variant of kernel, however many tensors, over tables that are uploaded once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from functools import cache, partial
from importlib.metadata import distributions

import torch

from ..table import Table
from .device_table import DeviceTable, device_tables
from .elements import Tensors, addresses, kinds
from .replay import Launch, Replay, only_device, upload
from .triton_variants import WARPS, Variant, variant_of

DISTRIBUTIONS = ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-rocm")
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

    def prepare(self, table: Table, sources: Tensors, targets: Tensors) -> Replay:
        """Choose kernels, upload the tables, compile."""
        device = only_device([*sources, *targets])
        ours = addresses(sources, table.source, table.source_offset)
        theirs = addresses(targets, table.target, table.target_offset)
        tables = device_tables(table, *kinds(table, sources, targets), ours, theirs, variant_of)
        return replay(tables, device)


def interpreting() -> bool:
    """Whether kernels run in Triton's interpreter."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def installed() -> bool:
    """Whether Triton is, asked of packages: a folder named triton on the path would pass for a module."""
    names = {distribution.metadata["Name"] for distribution in distributions()}
    return not names.isdisjoint(DISTRIBUTIONS)


def replay(tables: Mapping[Variant, DeviceTable], device: torch.device) -> Replay:
    """The launches over these tables."""
    launches = [_launch(variant, packed, device) for variant, packed in tables.items()]
    on_device = partial(torch.cuda.device, device) if device.type == "cuda" else nullcontext
    return Replay(launches, list(tables.values()), on_device)


def _launch(variant: Variant, table: DeviceTable, device: torch.device) -> Launch:
    from . import triton_kernels

    constants = triton_kernels.constants(variant) | {"num_warps": WARPS}
    if device.type == "cuda" and torch.version.hip is None:
        constants["maxnreg"] = variant.registers
    count = len(table.tiles)
    programs = min(count, _programs(device, variant))
    kernel = triton_kernels.transposes if variant.transposed else triton_kernels.rows
    return Launch(kernel, programs, upload(table, device), count, constants)


def _programs(device: torch.device, variant: Variant) -> int:
    if device.type == "cpu":
        return INTERPRETED_PROGRAMS
    return variant.programs * int(torch.cuda.get_device_properties(device).multi_processor_count)

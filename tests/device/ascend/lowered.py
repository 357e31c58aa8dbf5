# SPDX-License-Identifier: Apache-2.0
"""Asks for lowered kernels, and calls those that were compiled for this CPU as the launcher would call the NPU's."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import astuple
from functools import cache
from pathlib import Path
from typing import Any

import torch

from layout_kernels.backends.triton_ascend import AscendVariant

TOOLS = ("mlir-opt-19", "mlir-translate-19", "clang-19", "llvm-config-19")


def missing_tools() -> list[str]:
    """What of Debian's mlir-19-tools, llvm-19 and clang-19 is not installed."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


class Lowering:
    """A process that lowers variants, each once."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, str(Path(__file__).parent / "lowering.py"), str(folder)]
        environment = os.environ | {"TRITON_INTERPRET": "0"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._known: dict[tuple[str, AscendVariant], Path] = {}

    def __call__(self, what: str, variant: AscendVariant) -> Path:
        """The file of a variant: its ``linalg``, ``hivm`` or ``library``."""
        if (what, variant) not in self._known:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            print(json.dumps([what, astuple(variant)]), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline().strip()
            assert answer, f"{what} of {variant} failed"
            self._known[what, variant] = Path(answer)
        return self._known[what, variant]

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


@cache
def _function(library: Path, name: str) -> Any:
    return getattr(ctypes.CDLL(str(library)), name)


def _memref(tensor: torch.Tensor) -> list[Any]:
    """One dimension of memory is five arguments: pointer, aligned pointer, offset, size, stride."""
    pointer, numbers = ctypes.c_void_p(tensor.data_ptr()), (0, tensor.numel(), 1)
    return [pointer, pointer, *map(ctypes.c_int64, numbers)]


class Kernel:
    """Stands in for a kernel of Triton: called once for each program."""

    def __init__(self, name: str, lowering: Lowering) -> None:
        self._name, self._lowering = name, lowering
        self.programs_run = 0

    def __getitem__(self, grid: tuple[int]) -> Callable[..., None]:
        def start(*arguments: Any, **constants: Any) -> None:
            source, target, tiles, words, count = arguments
            library = self._lowering("library", self._variant(source, target, constants))
            scratch = _memref(torch.empty(8, dtype=torch.int8))
            tensors = [part for tensor in (source, target, tiles, words) for part in _memref(tensor)]
            for program in range(grid[0]):
                places = map(ctypes.c_int32, (count, grid[0], 1, 1, program, 0, 0))
                _function(library, self._name)(*scratch, *scratch, *tensors, *places)
                self.programs_run += count > 0

        return start

    def _variant(self, source: torch.Tensor, target: torch.Tensor, constants: dict[str, Any]) -> AscendVariant:
        transposed = "ACROSS" in constants
        rows, columns = ("DOWN", "ACROSS") if transposed else ("ROWS", "COLUMNS")
        tile = constants[rows], constants[columns]
        zero = constants.get("ZERO", False)
        return AscendVariant(transposed, source.itemsize, target.itemsize, constants["CAST"], zero, tile)

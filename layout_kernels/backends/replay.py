# SPDX-License-Identifier: Apache-2.0
"""What a device backend prepares: kernels with all their arguments, the tables among them on the device already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import LayoutError
from .device_table import DeviceTable


@dataclass(frozen=True)
class Launch:
    """A kernel over the tiles of one device table: ``kernel[programs](*bases, tiles, words, count, **constants)``."""

    kernel: Any
    programs: int
    arguments: tuple[torch.Tensor, ...]
    count: int
    constants: dict[str, Any]

    def start(self, count: int) -> None:
        """Walk the first ``count`` tiles."""
        self.kernel[(self.programs,)](*self.arguments, count, **self.constants)


class Replay:
    """Launches on one device. Calling it starts them on the caller's stream, and waits for nothing.

    Attributes
    ----------
    launches : int
        How many kernels a call starts.
    table_nbytes : int
        What their tables take on the device.
    """

    def __init__(self, launches: Sequence[Launch], tables: Sequence[DeviceTable], current: Current) -> None:
        self.launches = len(launches)
        self.table_nbytes = sum(table.nbytes for table in tables)
        self._current = current
        self._ready = tuple(launches)
        with current():
            for launch in self._ready:
                launch.start(0)  # compiles and loads: a capture must find every kernel in its place

    def __call__(self) -> None:
        with self._current():
            for launch in self._ready:
                launch.start(launch.count)


Current = Callable[[], AbstractContextManager[Any]]  # makes the device of the tensors the one that kernels start on


def upload(table: DeviceTable, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Tiles and words on the device."""
    return torch.from_numpy(table.tiles).to(device), torch.from_numpy(table.words).to(device)


def only_device(tensors: Sequence[torch.Tensor | None]) -> torch.device:
    """The device of all tensors.

    Raises
    ------
    LayoutError
        Where they are on several.
    """
    devices = sorted({str(tensor.device) for tensor in tensors if tensor is not None})
    if len(devices) > 1:
        raise LayoutError(f"one run is on one device, but the tensors are on {', '.join(devices)}")
    return torch.device(devices[0] if devices else "cpu")

# SPDX-License-Identifier: Apache-2.0
"""The backends: each runs the same block table. A new one is one file and one line here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from ..errors import LayoutError, nearest
from ..table import Table
from .cpu import Cpu
from .reference import Reference
from .triton import Triton
from .triton_ascend import TritonAscend

Tensors = Sequence[torch.Tensor | None]


class Prepared(Protocol):
    """A copy with everything done that can be done once: calling it replays it."""

    @property
    def launches(self) -> int:
        """How many kernels a call starts."""

    @property
    def table_nbytes(self) -> int:
        """What the block table takes beside the weights."""

    def __call__(self) -> None:
        """Replay the copy."""


class Backend(Protocol):
    """What runs a block table."""

    name: str
    about: str

    @property
    def devices(self) -> tuple[str, ...]:
        """The types of devices whose tensors it takes."""

    def missing(self) -> str | None:
        """Why it cannot run here, or None if it can."""

    def prepare(self, table: Table, sources: Tensors, targets: Tensors) -> Prepared:
        """Everything that can be done once."""


_ALL: tuple[Backend, ...] = (Reference(), Cpu(), Triton(), TritonAscend())
REGISTRY = {backend.name: backend for backend in _ALL}
BY_DEVICE = {"cpu": "cpu", "cuda": "triton", "npu": "triton-ascend"}


def choose(name: str, tensors: Sequence[torch.Tensor]) -> Backend:
    """The backend of that name, or for "auto" the one for the tensors' device.

    Raises
    ------
    LayoutError
        Where it is unknown or cannot run here; nothing else is tried instead.
    """
    if name == "auto":
        device = tensors[0].device.type if tensors else "cpu"
        name = BY_DEVICE.get(device, device)
    if name not in REGISTRY:
        raise LayoutError(f"there is no backend {name!r}: known are {', '.join(REGISTRY)}{nearest(name, REGISTRY)}")
    reason = REGISTRY[name].missing()
    if reason:
        raise LayoutError(f"backend {name!r} cannot run here: {reason}")
    return REGISTRY[name]


def backends() -> dict[str, str]:
    """Every backend with what it runs on, or why it cannot run here.

    Returns
    -------
    dict of str to str
        ``{"cpu": "…", "triton": "unavailable: …"}``
    """
    said = {}
    for name, backend in REGISTRY.items():
        reason = backend.missing()
        said[name] = f"unavailable: {reason}" if reason else backend.about
    return said

# SPDX-License-Identifier: Apache-2.0
"""Process groups built directly, beside whatever default group a process may have."""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed

from ..errors import LayoutError

distributed: Any = torch.distributed  # its stubs leave out what is used here


def own_address(host: str, port: int) -> str:
    """The address of this machine on the way to the store: the one that the other ranks can reach."""
    family, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(target)  # sends nothing
        return str(probe.getsockname()[0])


def _gloo(store: Any, rank: int, size: int, limit: timedelta, address: str) -> Any:
    gloo: Any = distributed.ProcessGroupGloo
    options = gloo._Options()
    options._timeout = limit
    options._threads = 2
    options._devices = [gloo.create_device(hostname=address)]
    return gloo(store, rank, size, options)


def _nccl(store: Any, rank: int, size: int, limit: timedelta, address: str) -> Any:
    if not distributed.is_nccl_available():
        raise LayoutError("backend 'nccl': this torch was built without NCCL")
    options = distributed.ProcessGroupNCCL.Options()
    options._timeout = limit
    return distributed.ProcessGroupNCCL(store, rank, size, options)


def _hccl(store: Any, rank: int, size: int, limit: timedelta, address: str) -> Any:
    try:
        from torch_npu._C._distributed_c10d import ProcessGroupHCCL
    except ImportError as error:
        raise LayoutError(f"backend 'hccl': torch_npu cannot be imported: {error}") from error
    options = ProcessGroupHCCL.Options()
    options._timeout = limit
    return ProcessGroupHCCL(store, rank, size, options)


BACKENDS: dict[str, Callable[[Any, int, int, timedelta, str], Any]] = {"gloo": _gloo, "nccl": _nccl, "hccl": _hccl}

# SPDX-License-Identifier: Apache-2.0
"""Channels over what already exists: a group of torch.distributed, or an engine's communicator."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as distributed

from ..errors import LayoutError
from .channel import BLOB_LIMIT, Channel
from .group import CommunicatorGroup, Group, TorchGroup


def wrap(group: Any, time_limit: float) -> Channel:
    """A channel over a torch.distributed group (None: the default one) or a communicator."""
    if group is None or isinstance(group, distributed.ProcessGroup):
        if not distributed.is_initialized():
            raise LayoutError("Channel.of(): torch.distributed has no default group; use connect()")
        return GroupChannel(group, time_limit)
    missing = [name for name in ("rank", "world_size", "broadcast", "send", "recv") if not hasattr(group, name)]
    if missing:
        raise LayoutError(f"Channel.of(): a {type(group).__name__} has no {', '.join(missing)}")
    return CommunicatorChannel(group, time_limit)


class _OverBroadcasts(Channel):
    """Messages travel as broadcasts, since there is no store."""

    device = torch.device("cpu")

    def exchange(self, data: bytes, what: str = "an exchange") -> list[bytes]:
        return [self._tell(data if root == self.rank else None, root, what) for root in range(self.size)]

    def note(self, text: str) -> None:
        """There is nowhere to leave it."""

    def look(self, what: str) -> None:
        """There is nobody to ask."""

    def _tell(self, data: bytes | None, root: int, what: str) -> bytes:
        length = torch.tensor([len(data or b"")], dtype=torch.int64, device=self.device)
        self.broadcast(length, root)
        count = int(length.item())
        if not 0 <= count <= BLOB_LIMIT:
            self.fail(what, ValueError(f"{self.name(root)} announced {count} bytes; at most {BLOB_LIMIT} are read"))
        if not count:
            return b""
        message = torch.empty(count, dtype=torch.uint8)
        if data:
            message = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        message = message.to(self.device)
        self.broadcast(message, root)
        return message.cpu().numpy().tobytes()


class GroupChannel(_OverBroadcasts):
    """A channel over a torch.distributed group."""

    def __init__(self, group: Any, time_limit: float) -> None:
        super().__init__(distributed.get_rank(group), distributed.get_world_size(group), time_limit)
        self._process_group: Any = group if group is not None else distributed.group.WORLD
        self._global = distributed.get_process_group_ranks(self._process_group)
        self.device = _message_device(distributed.get_backend(group))

    def _make_group(self, ranks: tuple[int, ...]) -> Group:
        if len(ranks) == self.size:
            return TorchGroup(self._process_group, ranks)
        made = distributed.new_group([self._global[rank] for rank in ranks], use_local_synchronization=True)
        return TorchGroup(made, ranks)


class CommunicatorChannel(_OverBroadcasts):
    """A channel over an engine's communicator, which has one group: all of its ranks."""

    def __init__(self, communicator: Any, time_limit: float) -> None:
        super().__init__(int(communicator.rank), int(communicator.world_size), time_limit)
        self._communicator = communicator
        self.device = torch.device(getattr(communicator, "device", "cpu"))

    def _make_group(self, ranks: tuple[int, ...]) -> Group:
        if len(ranks) == self.size or len(ranks) == 2:
            return CommunicatorGroup(self._communicator)
        raise LayoutError(
            f"an engine's communicator moves bytes among all of its {self.size} ranks; a group of {ranks} was asked "
            "for: use one trainer with it, or connect()"
        )


def _message_device(backend: str) -> torch.device:
    if "gloo" in backend:
        return torch.device("cpu")
    device = {"nccl": "cuda", "hccl": "npu"}.get(backend)
    if device is None:
        raise LayoutError(f"Channel.of(): a group of backend {backend!r} is not known; gloo, nccl and hccl are")
    return torch.device(device)

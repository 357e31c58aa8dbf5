# SPDX-License-Identifier: Apache-2.0
"""What moves bytes among some of a channel's ranks: torch process groups and engines' communicators, behind one face.

A group starts an operation and hands back a `Pending`; it never waits. Waiting, time limits and the naming of a
rank that does not answer are the channel's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as distributed


class Pending(Protocol):
    """An operation under way."""

    def pause(self, seconds: float) -> bool:
        """Waits at most so long; True once the operation has ended, well or badly."""

    def finish(self) -> None:
        """Called after the end: raises what went wrong, and orders a device's queue behind the operation."""


class Group(Protocol):
    """Some ranks of a channel that can move bytes. ``root``, ``target`` and ``source`` are ranks of the channel."""

    ranks: tuple[int, ...]

    def broadcast(self, tensor: torch.Tensor, root: int) -> Pending: ...

    def send(self, tensor: torch.Tensor, target: int) -> Pending: ...

    def recv(self, tensor: torch.Tensor, source: int) -> Pending: ...


class Communicator(Protocol):
    """What an engine's own communicator must offer; operations are queued on the current stream, in order."""

    rank: int
    world_size: int

    def broadcast(self, tensor: torch.Tensor, src: int) -> Any: ...

    def send(self, tensor: torch.Tensor, dst: int) -> Any: ...

    def recv(self, tensor: torch.Tensor, src: int) -> Any: ...


class TorchPending:
    """A `Work` of torch.distributed."""

    def __init__(self, work: Any, blocks: bool) -> None:
        self._work = work
        self._blocks = blocks

    def pause(self, seconds: float) -> bool:
        # A wait that ends at its limit leaves an operation of gloo unharmed; NCCL would abort the communicator.
        if self._work.is_completed():
            return True
        if not self._blocks:
            time.sleep(min(seconds, 0.0005))
            return bool(self._work.is_completed())
        try:
            self._work.wait(timedelta(seconds=seconds))
        except RuntimeError:
            return bool(self._work.is_completed())
        return True

    def finish(self) -> None:
        self._work.wait()


class PointPending:
    """A send or recv of gloo, which does not say whether it has ended: its own time limit ends it."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def pause(self, seconds: float) -> bool:
        return True

    def finish(self) -> None:
        self._work.wait()


class Done:
    """An operation that was queued in order on a stream: nothing to wait for on the host."""

    def pause(self, seconds: float) -> bool:
        return True

    def finish(self) -> None:
        return None


class TorchGroup:
    """A process group of torch, built by itself or by ``torch.distributed.new_group``."""

    def __init__(self, process_group: Any, ranks: Sequence[int]) -> None:
        self.ranks = tuple(ranks)
        self._process_group = process_group
        self._blocks = "gloo" in str(process_group.name()).lower()

    def broadcast(self, tensor: torch.Tensor, root: int) -> Pending:
        options = distributed.BroadcastOptions()
        options.rootRank = self.ranks.index(root)
        options.rootTensor = 0
        options.asyncOp = True
        return TorchPending(self._process_group.broadcast([tensor], options), self._blocks)

    def send(self, tensor: torch.Tensor, target: int) -> Pending:
        return self._point(self._process_group.send([tensor], self.ranks.index(target), 0))

    def recv(self, tensor: torch.Tensor, source: int) -> Pending:
        return self._point(self._process_group.recv([tensor], self.ranks.index(source), 0))

    def _point(self, work: Any) -> Pending:
        return PointPending(work) if self._blocks else TorchPending(work, False)


class CommunicatorGroup:
    """All ranks of an engine's communicator."""

    def __init__(self, communicator: Communicator) -> None:
        self.ranks = tuple(range(communicator.world_size))
        self._communicator = communicator

    def broadcast(self, tensor: torch.Tensor, root: int) -> Pending:
        self._communicator.broadcast(tensor, src=root)
        return Done()

    def send(self, tensor: torch.Tensor, target: int) -> Pending:
        self._communicator.send(tensor, dst=target)
        return Done()

    def recv(self, tensor: torch.Tensor, source: int) -> Pending:
        self._communicator.recv(tensor, src=source)
        return Done()

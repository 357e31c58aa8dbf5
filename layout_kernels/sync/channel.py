# SPDX-License-Identifier: Apache-2.0
"""A Channel joins the ranks of one sync: it moves bytes, exchanges small messages, and bounds every wait.

Trainers and engines share no torch world, and each may have a default group of its own, so a channel never touches
``torch.distributed``'s default group. Its ranks are numbered trainers first where `connect` made it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NoReturn

import torch

from ..errors import LayoutError
from .group import Group, Pending

POLL = 0.1  # seconds between two looks at whether another rank has reported a break
BLOB_LIMIT = 256 << 20  # bytes of one message; the holdings of a trillion-parameter rank are far below


class SyncError(LayoutError):
    """A wait that did not end well.

    Attributes
    ----------
    ranks : tuple of str
        The ranks that did not come or no longer answer, such as ``("rollout 1",)``; empty where all still do.
    """

    def __init__(self, message: str, ranks: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)


class Transfer:
    """A broadcast, send or recv under way on a channel; `wait` ends it within the channel's time limit."""

    def __init__(self, channel: Channel, pending: Pending, what: str, tensor: torch.Tensor) -> None:
        self._channel = channel
        self._pending = pending
        self._what = what
        self._tensor = tensor  # kept alive until the bytes have moved

    def wait(self) -> None:
        """Returns once the bytes have moved.

        Raises
        ------
        SyncError
            Where the time limit passes, a peer is lost, or another rank has reported a break.
        """
        self._channel.settle(self._pending, self._what)


class Channel(ABC):
    """Broadcast, send, recv, barrier and exchange among the ranks of a sync.

    Attributes
    ----------
    rank, size : int
        This rank and how many there are.
    time_limit : float
        Seconds after which any wait ends with a `SyncError`.
    broken : bool
        True after a wait that did not end well: operations may still be under way, so nothing more is sent on it.
    """

    def __init__(self, rank: int, size: int, time_limit: float) -> None:
        self.rank = rank
        self.size = size
        self.time_limit = time_limit
        self.broken = False
        self._why = ""
        self._groups: dict[tuple[int, ...], Group] = {}

    @staticmethod
    def of(group: object = None, *, time_limit: float = 300.0) -> Channel:
        """Wraps a torch.distributed group (None: the default one), or an engine's communicator.

        Parameters
        ----------
        group : ProcessGroup or Communicator, optional
            A communicator has ``rank``, ``world_size``, ``broadcast(tensor, src)``, ``send(tensor, dst)`` and
            ``recv(tensor, src)``, as those of vLLM and vLLM-Ascend do.
        time_limit : float
            Seconds; the group's own timeout, where shorter, still counts.
        """
        from .wrapped import wrap

        return wrap(group, time_limit)

    def name(self, rank: int) -> str:
        """How messages call a rank."""
        return f"rank {rank}"

    def group(self, ranks: Sequence[int]) -> Group:
        """The group of these ranks, made once; every one of them must call this, in the same order of groups."""
        wanted = tuple(sorted(ranks))
        self._refuse_broken()
        if wanted not in self._groups:
            self._groups[wanted] = self._make_group(wanted)
        return self._groups[wanted]

    def start_broadcast(self, tensor: torch.Tensor, root: int, ranks: Sequence[int] | None = None) -> Transfer:
        """Starts to move ``tensor`` from ``root`` into the tensors of the other ranks (of ``ranks``, or all)."""
        group = self.group(range(self.size) if ranks is None else ranks)
        return Transfer(self, group.broadcast(tensor, root), f"a broadcast from {self.name(root)}", tensor)

    def broadcast(self, tensor: torch.Tensor, root: int, ranks: Sequence[int] | None = None) -> None:
        """Moves ``tensor`` from ``root`` into the tensors of the other ranks (of ``ranks``, or all)."""
        self.start_broadcast(tensor, root, ranks).wait()

    def send(self, tensor: torch.Tensor, target: int) -> None:
        """Sends a tensor to one rank, which must call `recv`."""
        group = self.group((self.rank, target))
        Transfer(self, group.send(tensor, target), f"a send to {self.name(target)}", tensor).wait()

    def recv(self, tensor: torch.Tensor, source: int) -> None:
        """Receives a tensor from one rank, which must call `send`."""
        group = self.group((self.rank, source))
        Transfer(self, group.recv(tensor, source), f"a message from {self.name(source)}", tensor).wait()

    def barrier(self, what: str = "a barrier") -> None:
        """Returns once every rank has called it."""
        self.exchange(b"", what)

    @abstractmethod
    def exchange(self, data: bytes, what: str = "an exchange") -> list[bytes]:
        """Every rank gives a message and gets all of them, by rank. Messages are bytes, never objects."""

    @abstractmethod
    def _make_group(self, ranks: tuple[int, ...]) -> Group: ...

    @abstractmethod
    def note(self, text: str) -> None:
        """Leaves word of how far this rank has come, for the message of a rank that waits for it."""

    @abstractmethod
    def look(self, what: str) -> None:
        """Raises where another rank has reported a break; called now and then during every wait."""

    def interrupted(self) -> bool:
        """True where the channel cannot serve another sync, so that it must be made anew."""
        return self.broken

    def reconnect(self) -> Channel:
        """A new channel among the same ranks, where the old one broke."""
        raise LayoutError(f"{type(self).__name__} cannot connect again by itself; give attach() a new channel")

    def fail(self, what: str, cause: BaseException | None = None) -> NoReturn:
        """Marks the channel broken and raises a `SyncError` that says who no longer answers."""
        self.abort(what)
        reason = f": {first_line(cause)}" if cause else f" within the time limit of {self.time_limit:g} s"
        raise SyncError(f"{self.name(self.rank)}: {what} did not end well{reason}") from cause

    def abort(self, reason: str) -> None:
        """Ends the sync on all ranks, within a moment where the channel has a store, else within the time limit."""
        self.broken, self._why = True, self._why or reason

    def settle(self, pending: Pending, what: str) -> None:
        """Waits for an operation, looking for breaks reported by others, at most for the time limit."""
        deadline = time.monotonic() + self.patience
        while not pending.pause(POLL):
            self.look(what)
            if time.monotonic() > deadline:
                self.fail(what)
        try:
            pending.finish()
        except (RuntimeError, ValueError) as error:
            self.fail(what, error)

    @property
    def patience(self) -> float:
        """How long one wait lasts, so that it and the search for the missing rank stay within the time limit."""
        return self.time_limit

    def close(self) -> None:
        """Lets go of the groups; operations that are still under way end by themselves."""
        self.broken = True
        self._groups.clear()

    def _refuse_broken(self) -> None:
        if self.broken:
            raise SyncError(f"{self.name(self.rank)}: this channel is closed or broke off ({self._why}); connect again")


def first_line(cause: BaseException) -> str:
    text = str(cause).strip()
    return text.splitlines()[0][:400] if text else type(cause).__name__

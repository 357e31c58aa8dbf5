# SPDX-License-Identifier: Apache-2.0
"""What senders and receivers share: the agreement, the opening and closing of a sync, and the handle of one under way."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..errors import LayoutError
from ..spec import Spec
from .agreement import Agreement, agree, refuse_errors
from .channel import Channel
from .holdings import Holding, Holdings, pack_message, parse_message, take_stock
from .report import SyncReport


class RunningSync:
    """A sync under way in a thread; `start` returns it."""

    def __init__(self, run: Callable[[], SyncReport], progress: Callable[[], float]) -> None:
        self._progress = progress
        self._report: SyncReport | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._go, args=(run,), daemon=True, name="layout-kernels-sync")
        self._thread.start()

    def _go(self, run: Callable[[], SyncReport]) -> None:
        try:
            self._report = run()
        except BaseException as error:
            self._error = error

    def wait(self, timeout: float | None = None) -> SyncReport:
        """The report, once the sync has ended.

        Raises
        ------
        LayoutError
            What ended it, where it did not end well.
        TimeoutError
            Where it is still under way after ``timeout`` seconds.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"the sync is still under way after {timeout} s")
        if self._error is not None:
            raise self._error
        assert self._report is not None
        return self._report

    @property
    def done(self) -> bool:
        """Whether it has ended, well or badly."""
        return not self._thread.is_alive()

    @property
    def progress(self) -> float:
        """The fraction of this rank's bytes that have moved, from 0 to 1."""
        return self._progress()

    @property
    def report(self) -> SyncReport | None:
        """The report, None as long as there is none."""
        return self._report


class Participant(ABC):
    """One rank of a sync, of either role."""

    role: str

    def __init__(
        self,
        specs: Mapping[str, Spec],
        tensors: Mapping[str, torch.Tensor],
        channel: Channel,
        options: Mapping[str, Any],
        backend: str,
    ) -> None:
        self.specs = dict(specs)
        self.tensors = {name: tensor.detach() for name, tensor in tensors.items()}
        self.channel = channel
        self._options = dict(options)
        self._backend = backend
        self._agreement: Agreement | None = None
        self._busy = threading.Lock()
        self._moved = 0
        self._seconds: dict[str, float] = {}

    def agree(self) -> None:
        """Takes part in the agreement now, rather than at the first sync; every rank must.

        Raises
        ------
        LayoutError
            Where any rank refuses; the message names it and says why. Nothing was written.
        """
        self._agreement = agree(self.channel, self._holdings, self._strides())
        self.prepare(self._agreement)

    def attach(self, channel: Channel) -> None:
        """Goes on with another channel, keeping the tensors and, on a receiver, what is known of them."""
        self.channel = channel
        self._agreement = None

    def sync(self, version: int, *, verify: bool | None = None) -> SyncReport:
        """Moves every weight, in place, on all ranks together.

        Where the channel broke in an earlier sync, it connects again first, and all ranks agree anew.

        Parameters
        ----------
        version : int
            The same on all ranks, or the sync is refused before a byte moves.
        verify : bool, optional
            Overrides what was said when this was made.

        Raises
        ------
        SyncError
            Where a rank does not come, or is lost, within the channel's time limit.
        LayoutError
            Where any rank refuses; nothing was written.
        """
        if not self._busy.acquire(blocking=False):
            raise LayoutError(f"{self.name}: a sync is under way already; wait() for it")
        try:
            return self._sync(version, verify)
        finally:
            self._busy.release()

    def start(self, version: int, *, verify: bool | None = None) -> RunningSync:
        """As `sync`, in a thread: ``.wait()``, ``.progress`` and ``.report`` of what it returns tell how it goes."""
        self._moved = 0
        enter = _same_stream(self._device())

        def run() -> SyncReport:
            with enter():
                return self.sync(version, verify=verify)

        return RunningSync(run, self._progress)

    @property
    def name(self) -> str:
        """Such as ``"trainer 0"``."""
        return self.channel.name(self.channel.rank)

    def close(self) -> None:
        """Closes the channel and lets go of the buffers."""
        self.channel.close()
        self._agreement = None
        self.release()

    def _sync(self, version: int, verify: bool | None) -> SyncReport:
        started = time.monotonic()
        self._seconds, self._moved = {}, 0
        report = SyncReport(version, self.name)
        with self._stage("agree"):
            if self.channel.interrupted():
                self.attach(self.channel.reconnect())
            if self._agreement is None:
                self.agree()
            proving = self._open(version, verify)
        try:
            self.move(version, report, proving)
            with self._stage("wire"):
                self._finish(version)
        except BaseException as error:
            self._agreement = None
            self.release()
            if not self.channel.broken:
                self.channel.abort(f"version {version}: {error}")
            raise
        report.stages, report.nbytes, report.verified = dict(self._seconds), self._moved, proving
        report.seconds = time.monotonic() - started
        return report

    def _open(self, version: int, verify: bool | None) -> bool:
        """All ranks say the version and what they agreed on, before a byte moves."""
        assert self._agreement is not None
        asked = self._options["verify"] if verify is None else verify
        error = "" if _whole_number(version) else f"version {version!r} is no whole number"
        said = {"version": str(version), "digest": self._agreement.digest, "error": error or self.refusal(), "verify": bool(asked)}
        blobs = self.channel.exchange(pack_message(said), f"opening version {version}")
        answers = [parse_message(blob) for blob in blobs]
        refuse_errors(self.channel, answers)
        for word in ("version", "digest", "verify"):
            _refuse_difference(self.channel, word, [answer.get(word) for answer in answers])
        return bool(asked)

    def _finish(self, version: int) -> None:
        self.channel.barrier(f"ending version {version}")

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.monotonic() - started

    def _holdings(self) -> Holdings:
        held = take_stock(self.specs, self.tensors)
        devices = {tensor.device for tensor in self.tensors.values()}
        if len(devices) > 1:
            raise LayoutError(f"the tensors are on {len(devices)} devices, {sorted(map(str, devices))}; one was wanted")
        self._pointers = [tensor.data_ptr() for tensor in self.tensors.values()]
        return Holdings(self.role, held, self._options)

    def refusal(self) -> str:
        """Why this rank cannot take part in the next sync, or nothing."""
        for (name, tensor), pointer in zip(self.tensors.items(), self._pointers, strict=True):
            if tensor.data_ptr() != pointer:
                return f"tensor {name!r} has moved since the agreement; make a new {type(self).__name__}"
        return ""

    def _device(self) -> torch.device:
        return next((tensor.device for tensor in self.tensors.values()), torch.device("cpu"))

    def _strides(self) -> dict[str, tuple[int, ...]]:
        return {}

    def _holding(self, rank: int, name: str) -> Holding:
        assert self._agreement is not None
        return self._agreement.trainers[rank][name]

    @abstractmethod
    def prepare(self, agreement: Agreement) -> None:
        """Allocates the buffers and binds the plans."""

    @abstractmethod
    def move(self, version: int, report: SyncReport, proving: bool) -> None:
        """Moves the weights of one sync."""

    @abstractmethod
    def release(self) -> None:
        """Lets go of the buffers."""

    @abstractmethod
    def _progress(self) -> float: ...


def _whole_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _refuse_difference(channel: Channel, word: str, values: Sequence[Any]) -> None:
    for rank, value in enumerate(values):
        if value != values[0]:
            raise LayoutError(
                f"{channel.name(rank)} says {word} {value}, {channel.name(0)} says {values[0]}; "
                "all ranks must agree (nothing was written)"
            )


def _same_stream(device: torch.device) -> Callable[[], Any]:
    """A context for another thread, in which work is queued on the stream that is current here."""
    if device.type == "cpu":
        return _nothing
    module = getattr(torch, device.type)
    stream = module.current_stream(device)
    return lambda: module.stream(stream)


@contextmanager
def _nothing() -> Iterator[None]:
    yield

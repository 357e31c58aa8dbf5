# SPDX-License-Identifier: Apache-2.0
"""What senders and receivers share: opening, agreeing and closing a sync, and what happens where it breaks off."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..errors import LayoutError
from ..spec import Spec
from . import proof
from .agreement import Agreement, agree, refuse_errors, say_ready
from .channel import Channel, SyncError
from .handle import RunningSync, same_stream
from .holdings import Holdings, pack_message, parse_message, take_stock
from .report import SyncReport


class Participant(ABC):
    """One rank of a sync, of either role."""

    role: str

    def __init__(
        self,
        specs: Mapping[str, Spec],
        tensors: Mapping[str, torch.Tensor],
        channel: Channel,
        options: Mapping[str, Any],
        verify: bool,
        backend: str,
    ) -> None:
        self.specs = dict(specs)
        self.tensors = dict(tensors)
        self.channel = channel
        self._options = dict(options)
        self._verify = verify
        self._backend = backend
        self._agreement: Agreement | None = None
        self._pointers: list[int] = []
        self._busy = threading.Lock()
        self._moved = 0
        self._seconds: dict[str, float] = {}
        self._digests: dict[str, list[str]] = {}
        self._faults: list[str] = []

    @property
    def name(self) -> str:
        """Such as ``"trainer 0"``."""
        return self.channel.name(self.channel.rank)

    @property
    def agreement(self) -> Agreement | None:
        """What all ranks agreed on, None before the first sync and after one that broke off."""
        return self._agreement

    def agree(self) -> None:
        """Takes part in the agreement now, rather than in the first sync; every rank must.

        Raises
        ------
        LayoutError
            Where any rank refuses; the message names it and says why. Nothing was written.
        """
        with self._alone():
            self._open(None, False)

    def sync(self, version: int, *, verify: bool | None = None) -> SyncReport:
        """Moves every weight, in place, on all ranks together.

        Where the channel broke in an earlier sync, it connects again first, and all ranks agree anew.

        Parameters
        ----------
        version : int
            The same on all ranks, or the sync is refused before a byte moves.
        verify : bool, optional
            Overrides what was said when this was made; where any rank wants it, all do it.

        Raises
        ------
        SyncError
            Where a rank does not come, or is lost, within the channel's time limit.
        LayoutError
            Where any rank refuses; nothing was written.
        """
        with self._alone():
            started = time.monotonic()
            self._seconds, self._digests, self._faults, self._moved = {}, {}, [], 0
            with self._stage("agree"):
                proving = self._open(version, self._verify if verify is None else verify)
            self._seconds["agree"] -= self._seconds.get("plan", 0.0)
            report = SyncReport(version, self.name, verified=proving)
            with self._breaking_off(f"version {version}"):
                self.move(version, report, proving)
                with self._stage("wire"):
                    self._finish(version, proving)
            report.stages, report.nbytes = dict(self._seconds), self._moved
            report.seconds = time.monotonic() - started
            return report

    def start(self, version: int, *, verify: bool | None = None) -> RunningSync:
        """As `sync`, in a thread: ``.wait()``, ``.progress`` and ``.report`` of what it returns tell how it goes."""
        self._moved = 0
        enter = same_stream(self._device())

        def run() -> SyncReport:
            with enter():
                return self.sync(version, verify=verify)

        return RunningSync(run, self._progress)

    def abort(self, reason: str = "aborted by the caller") -> None:
        """Ends a sync that is under way, on all ranks; any thread may call it. The next sync connects again."""
        self.channel.abort(reason)

    def attach(self, channel: Channel) -> None:
        """Goes on with another channel, keeping the tensors and, on a receiver, what is known of them."""
        self.channel = channel
        self._forget()

    def close(self) -> None:
        """Closes the channel and lets go of the buffers."""
        self.channel.close()
        self._forget()

    # -- the opening ---------------------------------------------------------------------------------------------------

    def _open(self, version: int | None, verify: bool) -> bool:
        """All ranks say the version, and agree anew where one of them has not. Whether to verify is what comes back."""
        if self.channel.interrupted():
            self.attach(self.channel.reconnect())
        try:
            answers = self._say_version(version, verify)
            digests = {answer.get("agreed") for answer in answers}
            if digests == {""} or len(digests) > 1:
                self._agree()
            proving = any(answer.get("verify") is True for answer in answers)
            if proving:
                self._compare_replicas()
        except LayoutError:
            self._forget()
            raise
        except BaseException as error:
            self._forget()
            self.channel.abort(f"opening version {version}: {error}")
            raise
        return proving

    def _say_version(self, version: int | None, verify: bool) -> list[dict[str, Any]]:
        if self._agreement is not None and self._moved_tensor():
            self._forget()  # its addresses are bound: all agree anew, which the report shows as time to plan
        said = {
            "version": repr(version),
            "agreed": self._agreement.digest if self._agreement else "",
            "error": self._refusal(version),
            "verify": verify,
        }
        blobs = self.channel.exchange(pack_message(said), f"opening version {version}")
        answers = [parse_message(blob) for blob in blobs]
        refuse_errors(self.channel, answers)
        for rank, answer in enumerate(answers):
            if answer.get("version") != answers[0].get("version"):
                raise LayoutError(
                    f"{self.channel.name(rank)} says version {answer.get('version')}, {self.channel.name(0)} says "
                    f"{answers[0].get('version')}: all ranks must say the same (nothing was written)"
                )
        return answers

    def _refusal(self, version: object) -> str:
        """Why this rank cannot take part, or nothing."""
        if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
            return f"version {version!r}: a whole number was wanted"
        return ""

    def _moved_tensor(self) -> bool:
        return [tensor.data_ptr() for tensor in self.tensors.values()] != self._pointers

    def _agree(self) -> None:
        self._forget()
        agreement = agree(self.channel, self._holdings, self.strides(), self._stage)
        say_ready(self.channel, agreement, lambda: self._prepare(agreement))
        self._agreement = agreement

    def _prepare(self, agreement: Agreement) -> None:
        with self._stage("plan"):
            self.prepare(agreement)

    def _holdings(self) -> Holdings:
        held = take_stock(self.specs, self.tensors)
        devices = {tensor.device for tensor in self.tensors.values()}
        if len(devices) > 1:
            raise LayoutError(f"the tensors are on {len(devices)} devices, {sorted(map(str, devices))}; one was wanted")
        self._pointers = [tensor.data_ptr() for tensor in self.tensors.values()]
        return Holdings(self.role, held, self._options)

    def _compare_replicas(self) -> None:
        assert self._agreement is not None
        held = self._agreement.trainers
        mine = proof.replica_digests(self.channel.rank, held, self.tensors) if self.role == "trainer" else {}
        blobs = self.channel.exchange(pack_message(mine), "comparing replicas")
        proof.refuse_unequal_replicas(self.channel, held, {rank: parse_message(blobs[rank]) for rank in held})

    # -- the end -------------------------------------------------------------------------------------------------------

    def _finish(self, version: int, proving: bool) -> None:
        """All ranks have done their part; what verification found, on any of them, raises on all."""
        assert self._agreement is not None
        said = {"error": "; ".join(self._faults), "digests": self._digests}
        blobs = self.channel.exchange(pack_message(said) if proving else b"", f"ending version {version}")
        if not proving:
            return
        answers = [parse_message(blob) for blob in blobs]
        refuse_errors(self.channel, answers, "")
        digests = [answer.get("digests") or {} for answer in answers]
        proof.refuse_lost_bytes(self.channel, self._agreement.buckets, digests, self._agreement.rollouts)

    @contextmanager
    def _breaking_off(self, what: str) -> Iterator[None]:
        """Whatever ends a sync in the middle ends it on all ranks: they hear of it, and the channel is used no more."""
        try:
            yield
        except BaseException as error:
            self._forget()
            self.broke(error)
            if not isinstance(error, SyncError):
                self.channel.abort(f"{what}: {error}")
            raise

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            raise LayoutError(f"{self.name}: a sync is under way already; wait() for it")
        try:
            yield
        finally:
            self._busy.release()

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.monotonic() - started

    def _forget(self) -> None:
        self._agreement = None
        self.release()

    def _device(self) -> torch.device:
        return next((tensor.device for tensor in self.tensors.values()), torch.device("cpu"))

    def _progress(self) -> float:
        total = sum(nbytes for nbytes in self.sizes())
        return self._moved / total if total else 0.0

    # -- what each role does -------------------------------------------------------------------------------------------

    @abstractmethod
    def prepare(self, agreement: Agreement) -> None:
        """Allocates the buffers and binds the plans."""

    @abstractmethod
    def move(self, version: int, report: SyncReport, proving: bool) -> None:
        """Moves the weights of one sync."""

    @abstractmethod
    def release(self) -> None:
        """Lets go of the buffers and plans."""

    @abstractmethod
    def sizes(self) -> Sequence[int]:
        """The bytes of each bucket that this rank moves."""

    def strides(self) -> dict[str, tuple[int, ...]]:
        """Of targets that are not contiguous."""
        return {}

    def broke(self, error: BaseException) -> None:
        """A sync broke off in the middle."""
        del error

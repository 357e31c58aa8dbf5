# SPDX-License-Identifier: Apache-2.0
"""The channel of a session: messages through the store, weights through process groups, and who is missing by name."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn

from .bounded import Bounded
from .channel import BLOB_LIMIT, Channel, SyncError, first_line
from .group import Group, TorchGroup
from .process_groups import BACKENDS, distributed, own_address
from .session import BrokenError, Session

if TYPE_CHECKING:
    from .connect import Meeting


class StoreChannel(Channel):
    """The channel that `connect` makes."""

    def __init__(self, meeting: Meeting, session: Session, names: Sequence[str]) -> None:
        super().__init__(names.index(meeting.me), len(names), meeting.time_limit)
        self._meeting = meeting
        self._session = session
        self._names = list(names)
        self._count = 0

    def name(self, rank: int) -> str:
        return self._names[rank]

    @property
    def patience(self) -> float:
        return self.time_limit - store_limit(self.time_limit) - grace(self.time_limit)

    def exchange(self, data: bytes, what: str = "an exchange") -> list[bytes]:
        self._refuse_broken()
        self._count += 1
        stage = f"exchange/{self._count}"
        keys = [f"{stage}/{rank}" for rank in range(self.size)]
        try:
            self._session.put(keys[self.rank], data)
            if not self._session.until(lambda: self._session.store.check(keys), self._deadline()):
                self.fail(f"{what} (no word from {', '.join(self._absent(stage))})")
            blobs = [self._session.take(key, BLOB_LIMIT) for key in keys]
            self._leave(stage, keys, what)
        except (RuntimeError, BrokenError, ValueError) as error:
            if isinstance(error, SyncError):
                raise
            self.fail(what, error)
        return blobs

    def _leave(self, stage: str, keys: list[str], what: str) -> None:
        """The host leaves an exchange last, since its store would go with it, and clears what was read."""
        store = self._session.store
        if not self._meeting.hosts:
            store.add(f"{stage}/read", 1)
            return
        if not self._session.until(lambda: store.add(f"{stage}/read", 0) >= self.size - 1, self._deadline()):
            self.fail(what)
        self._session.forget(keys)
        store.delete_key(f"{stage}/read")

    def _deadline(self) -> float:
        return time.monotonic() + self.patience

    def _absent(self, stage: str) -> list[str]:
        return [self.name(int(rank)) for rank in self._session.absent(stage, [str(r) for r in range(self.size)])]

    def note(self, text: str) -> None:
        self._session.store.set_later(f"note/{self.rank}", text)

    def look(self, what: str) -> None:
        try:
            self._session.look()
        except (BrokenError, RuntimeError) as error:
            self.fail(what, error)

    def interrupted(self) -> bool:
        if self.broken:
            return True
        try:
            return self._session.is_broken()
        except RuntimeError:
            return True

    def reconnect(self) -> Channel:
        self.close()
        return self._meeting.attend(previous=self._session)

    def abort(self, reason: str) -> None:
        super().abort(reason)
        try:
            self._session.break_off(self.name(self.rank), reason)
            self._session.store.set(f"report/{self.rank}", b"1")
        except RuntimeError:
            return  # the store is gone, and everybody who looks at it sees that

    def fail(self, what: str, cause: BaseException | None = None) -> NoReturn:
        self.abort(f"{what}: {first_line(cause)}" if cause else f"{what}: the time limit passed")
        try:
            message, silent = self._explain(what, cause)
        except (RuntimeError, ValueError) as error:
            host = self.name(0)
            gone = f"{host}, which hosts the store, no longer answers ({first_line(error)})"
            raise SyncError(f"{self.name(self.rank)}: {what} broke off: {gone}", (host,)) from cause
        raise SyncError(message, silent) from (None if isinstance(cause, BrokenError) else cause)

    def _explain(self, what: str, cause: BaseException | None) -> tuple[str, list[str]]:
        """The message of a break: who does not answer, what it was last heard to do, and who reported first."""
        silent = self._silent()
        report = self._session.report()
        first = str(report.get("rank", "?"))
        text = f"{self.name(self.rank)}: {what} broke off"
        if silent:
            text += f": no answer from {', '.join(f'{name} (last heard: {self._last(name)})' for name in silent)}"
        elif cause is None or isinstance(cause, BrokenError):
            text += ": every rank still answers"
        if first != self.name(self.rank):
            text += f"; {first} reported first: {report.get('what', '')}"
        elif cause is not None:
            text += f": {first_line(cause)}"
        return text + f" (time limit {self.time_limit:g} s)", silent

    def _silent(self) -> list[str]:
        """The ranks that do not report within a moment: every rank in a wait hears of a break and reports itself."""
        deadline = time.monotonic() + 0.75 * grace(self.time_limit)
        while silent := self._absent("report"):
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        return silent

    def _last(self, name: str) -> str:
        key = f"note/{self._names.index(name)}"
        store = self._session.store
        return store.get(key).decode(errors="replace")[:200] if store.check([key]) else "nothing"

    def close(self) -> None:
        """Lets go of the groups, in the background, since that waits for operations that are still under way."""
        groups, self._groups = self._groups, {}
        quiet, self.broken = not self.broken, True
        closing = threading.Thread(target=groups.clear, daemon=True, name="layout-kernels-close")
        closing.start()
        # A process that ends while a group is being let go of would be aborted by it.
        if quiet:
            closing.join(self.patience)
        else:
            atexit.register(closing.join, self.patience)

    def _make_group(self, ranks: tuple[int, ...]) -> Group:
        store = distributed.PrefixStore("group/" + ",".join(map(str, ranks)), self._session.prefixed)
        make = BACKENDS[self._meeting.backend]
        address = own_address(*self._meeting.address)
        limit = timedelta(seconds=self.patience)
        try:
            made = Bounded(self.patience)(make, store, ranks.index(self.rank), len(ranks), limit, address)
        except RuntimeError as error:
            self.fail(f"connecting with {', '.join(self.name(rank) for rank in ranks)}", error)
        return TorchGroup(made, ranks)


def grace(time_limit: float) -> float:
    """The part of the time limit that is kept for finding out who does not answer."""
    return min(2.0, time_limit / 4)


def store_limit(time_limit: float) -> float:
    """What one call to the store may take."""
    return min(5.0, time_limit / 4)

# SPDX-License-Identifier: Apache-2.0
"""`connect`: trainers and rollouts meet at a TCP store, and get process groups of their own."""

from __future__ import annotations

import atexit
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NoReturn

import torch.distributed as distributed

from ..errors import LayoutError, nearest
from .bounded import Bounded
from .channel import BLOB_LIMIT, Channel, SyncError, _first_line
from .group import Group, TorchGroup
from .session import ROLES, Broken, Session

_servers: dict[tuple[str, int], Any] = {}  # stores that this process hosts: they live as long as it does


def connect(
    address: str,
    *,
    role: str,
    rank: int,
    world: int,
    backend: str = "gloo",
    time_limit: float = 300.0,
) -> Channel:
    """Joins trainers and rollouts in one channel.

    Trainer 0 hosts a TCP store at the address and stays until the others have gone; nothing else need be shared, and
    the default group of torch.distributed, if there is one, is left alone. The ranks of the channel are the trainers,
    then the rollouts. A rank that restarts calls `connect` again: the others take it in at their next sync.

    Parameters
    ----------
    address : str
        ``"host:port"``, the same for all, reachable by all.
    role : {"trainer", "rollout"}
    rank, world : int
        This rank among those of its role, and how many of its role there are; the other role's number is learnt.
    backend : {"gloo", "nccl", "hccl"}
        What moves the weights.
    time_limit : float
        Seconds. Ends this call and every later wait on the channel.

    Raises
    ------
    SyncError
        Where not all ranks came within the time limit: it names those that did not.
    LayoutError
        Where an argument is not of the form above, or two ranks of one role disagree about ``world``.
    """
    meeting = _Meeting(_parse(address), _checked_role(role, rank, world), rank, world, backend, time_limit)
    return meeting.attend(previous=None)


class _Meeting:
    """The arguments of `connect`, and the way to a session that all ranks attend."""

    def __init__(
        self, address: tuple[str, int], role: str, rank: int, world: int, backend: str, time_limit: float
    ) -> None:
        if backend not in _BACKENDS:
            raise LayoutError(f"backend {backend!r} is not known{nearest(backend, _BACKENDS)}: {sorted(_BACKENDS)}")
        self.address, self.role, self.rank, self.world = address, role, rank, world
        self.backend, self.time_limit = backend, time_limit
        self.me = f"{role} {rank}"
        self.hosts = role == "trainer" and rank == 0

    def attend(self, previous: Session | None) -> Channel:
        """Tries sessions until all ranks are in one, or the time limit ends it."""
        deadline = time.monotonic() + self.time_limit
        why = "no session was opened"
        while time.monotonic() < deadline:
            try:
                session = self._open(previous, deadline)
                names = self._gather(session, deadline)
                return StoreChannel(self, session, names)
            except Broken as broken:
                if broken.report.get("fatal"):
                    raise LayoutError(f"{self.me}: {broken}") from None
                why, previous = str(broken), session
            except RuntimeError as error:  # the store went away, as it does where trainer 0 restarts
                why, previous = _first_line(error), None
                time.sleep(0.1)
        host = "" if self.hosts else " Trainer 0 hosts the store."
        raise SyncError(
            f"{self.me}: no session at {self._where()} within the time limit of {self.time_limit:g} s: {why}.{host}",
            () if self.hosts else ("trainer 0",),
        )

    def _where(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def _open(self, previous: Session | None, deadline: float) -> Session:
        """A session other than the previous one: opened by the host, looked for by everybody else."""
        store = Bounded(max(1.0, deadline - time.monotonic()))(self._store, deadline)
        bounded = Bounded(_store_limit(self.time_limit))
        if self.hosts:
            if previous is not None:
                previous.break_off(self.me, f"{self.me} opened a new session")
            session = Session(store, secrets.token_hex(8), bounded)
            bounded(store.set, "session", session.token)
            return session
        old = previous.token if previous else ""
        while time.monotonic() < deadline:
            token = bounded(store.get, "session").decode() if bounded(store.check, ["session"]) else old
            session = Session(store, token, bounded)
            if token != old and not session.is_broken():
                return session
            time.sleep(0.02)
        raise RuntimeError("no new session was opened by trainer 0")

    def _store(self, deadline: float) -> Any:
        left = timedelta(seconds=max(0.5, deadline - time.monotonic()))
        host, port = self.address
        if not self.hosts:
            _await_listener(host, port, deadline)
            return distributed.TCPStore(host, port, wait_for_workers=False, timeout=left)
        if self.address not in _servers:
            _servers[self.address] = distributed.TCPStore(
                host, port, is_master=True, wait_for_workers=False, timeout=left
            )
        return _servers[self.address]

    def _gather(self, session: Session, deadline: float) -> list[str]:
        """Enters the session and waits for all: the names of the ranks, trainers first."""
        count, agreed = session.enter(self.role, self.rank, self.world)
        if agreed != self.world:
            what = f"{self.me} says that there are {self.world} {self.role}s, another {self.role} said {agreed}"
            session.break_off(self.me, what, fatal=True)
        elif count > 1:
            session.break_off(self.me, f"{self.me} connected again: it restarted, or two processes have this rank")
        if not session.until(lambda: not self._missing(session), deadline - _grace(self.time_limit)):
            self._give_up(session)
        return _names(session)

    def _missing(self, session: Session) -> list[str]:
        unknown = [f"any {role}" for role, world in session.worlds().items() if world is None]
        return unknown or session.absent("here", [name.replace(" ", "/") for name in _names(session)])

    def _give_up(self, session: Session) -> NoReturn:
        missing = [name.replace("/", " ") for name in self._missing(session)]
        what = f"{', '.join(missing)} did not come to {self._where()}"
        session.break_off(self.me, what)
        raise SyncError(f"{self.me}: {what} within the time limit of {self.time_limit:g} s", missing)


class StoreChannel(Channel):
    """The channel that `connect` makes."""

    def __init__(self, meeting: _Meeting, session: Session, names: Sequence[str]) -> None:
        super().__init__(names.index(meeting.me), len(names), meeting.time_limit)
        self._meeting = meeting
        self._session = session
        self._names = list(names)
        self._count = 0

    def name(self, rank: int) -> str:
        return self._names[rank]

    @property
    def patience(self) -> float:
        return self.time_limit - _store_limit(self.time_limit) - _grace(self.time_limit)

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
        except (RuntimeError, Broken, ValueError) as error:
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
        if not self.broken:
            try:
                self._session.store.set(f"note/{self.rank}", text)
            except RuntimeError as error:
                self.fail(text, error)

    def look(self, what: str) -> None:
        try:
            self._session.look()
        except (Broken, RuntimeError) as error:
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
        self.broken = True
        try:
            self._session.break_off(self.name(self.rank), reason)
            self._session.store.set(f"report/{self.rank}", b"1")
        except RuntimeError:
            return  # the store is gone, and everybody who looks at it sees that

    def fail(self, what: str, cause: BaseException | None = None) -> NoReturn:
        self.abort(f"{what}: {_first_line(cause)}" if cause else f"{what}: the time limit passed")
        try:
            message, silent = self._explain(what, cause)
        except (RuntimeError, ValueError) as error:
            host = self.name(0)
            gone = f"{host}, which hosts the store, no longer answers ({_first_line(error)})"
            raise SyncError(f"{self.name(self.rank)}: {what} broke off: {gone}", (host,)) from cause
        raise SyncError(message, silent) from (None if isinstance(cause, Broken) else cause)

    def _explain(self, what: str, cause: BaseException | None) -> tuple[str, list[str]]:
        """The message of a break: who does not answer, what it was last heard to do, and who reported first."""
        silent = self._silent()
        report = self._session.report()
        first = str(report.get("rank", "?"))
        text = f"{self.name(self.rank)}: {what} broke off"
        if silent:
            text += f": no answer from {', '.join(f'{name} (last heard: {self._last(name)})' for name in silent)}"
        elif cause is None or isinstance(cause, Broken):
            text += ": every rank still answers"
        if first != self.name(self.rank):
            text += f"; {first} reported first: {report.get('what', '')}"
        elif cause is not None:
            text += f": {_first_line(cause)}"
        return text + f" (time limit {self.time_limit:g} s)", silent

    def _silent(self) -> list[str]:
        """The ranks that do not report within a moment: every rank in a wait hears of a break and reports itself."""
        deadline = time.monotonic() + 0.75 * _grace(self.time_limit)
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
        """Lets go of the groups; where operations may still be under way, in the background, since that waits for them."""
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
        make = _BACKENDS[self._meeting.backend]
        address = _own_address(*self._meeting.address)
        limit = timedelta(seconds=self.patience)
        try:
            made = Bounded(self.patience)(make, store, ranks.index(self.rank), len(ranks), limit, address)
        except RuntimeError as error:
            self.fail(f"connecting with {', '.join(self.name(rank) for rank in ranks)}", error)
        return TorchGroup(made, ranks)


def _names(session: Session) -> list[str]:
    return [f"{role} {rank}" for role, world in session.worlds().items() for rank in range(world or 0)]


def _grace(time_limit: float) -> float:
    """The part of the time limit that is kept for finding out who does not answer."""
    return min(2.0, time_limit / 4)


def _store_limit(time_limit: float) -> float:
    """What one call to the store may take."""
    return min(5.0, time_limit / 4)


def _parse(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise LayoutError(f"address {address!r}: 'host:port' was wanted, with a port between 1 and 65535")
    return host.strip("[]"), int(port)


def _checked_role(role: str, rank: int, world: int) -> str:
    if role not in ROLES:
        raise LayoutError(f"role {role!r}: one of {ROLES} was wanted{nearest(role, ROLES)}")
    if not 0 <= rank < world:
        raise LayoutError(f"{role} {rank} of {world}: a rank from 0 to {world - 1} was wanted")
    return role


def _await_listener(host: str, port: int, deadline: float) -> None:
    """Returns once somebody listens there: a client of the store that finds nobody sleeps for seconds between attempts."""
    while True:
        try:
            socket.create_connection((host, port), timeout=1.0).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise RuntimeError(f"nobody listens at {host}:{port} ({error})") from error
        time.sleep(0.05)


def _own_address(host: str, port: int) -> str:
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


_BACKENDS: dict[str, Callable[[Any, int, int, timedelta, str], Any]] = {"gloo": _gloo, "nccl": _nccl, "hccl": _hccl}

# SPDX-License-Identifier: Apache-2.0
"""`connect`: trainers and rollouts meet at a TCP store, and get process groups of their own."""

from __future__ import annotations

import secrets
import socket
import time
from datetime import timedelta
from typing import Any, NoReturn

from ..errors import LayoutError, nearest
from .bounded import Bounded
from .channel import Channel, SyncError, first_line
from .process_groups import BACKENDS, distributed
from .session import ROLES, BrokenError, Session
from .store_channel import StoreChannel, grace, store_limit

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
    meeting = Meeting(_parse(address), _checked_role(role, rank, world), rank, world, backend, time_limit)
    return meeting.attend(previous=None)


class Meeting:
    """The arguments of `connect`, and the way to a session that all ranks attend."""

    def __init__(
        self, address: tuple[str, int], role: str, rank: int, world: int, backend: str, time_limit: float
    ) -> None:
        if backend not in BACKENDS:
            raise LayoutError(f"backend {backend!r} is not known{nearest(backend, BACKENDS)}: {sorted(BACKENDS)}")
        self.address, self.role, self.rank, self.world = address, role, rank, world
        self.backend, self.time_limit = backend, time_limit
        self.me = f"{role} {rank}"
        self.hosts = role == "trainer" and rank == 0
        self._client: Any = None

    def attend(self, previous: Session | None) -> Channel:
        """Tries sessions until all ranks are in one, or the time limit ends it."""
        deadline = time.monotonic() + self.time_limit
        why = "trainer 0 opened none"
        while time.monotonic() < deadline:
            try:
                session = self._open(previous, deadline)
                names = self._gather(session, deadline)
                return StoreChannel(self, session, names)
            except TimeoutError:
                break
            except BrokenError as broken:
                self._refuse_hopeless(broken, deadline)
                why, previous = str(broken), session
                time.sleep(0.1)
            except RuntimeError as error:  # the store went away, as it does where trainer 0 restarts
                why, previous, self._client = first_line(error), None, None
                time.sleep(0.1)
        host = "" if self.hosts else " Trainer 0 hosts the store."
        raise SyncError(
            f"{self.me}: no session at {self._where()} within the time limit of {self.time_limit:g} s: {why}.{host}",
            () if self.hosts else ("trainer 0",),
        )

    def _refuse_hopeless(self, broken: BrokenError, deadline: float) -> None:
        """Raises where another session would end as this one did."""
        if broken.report.get("fatal"):
            raise LayoutError(f"{self.me}: {broken}") from None
        missing = broken.report.get("missing")
        if isinstance(missing, list) and missing and deadline - time.monotonic() < self.time_limit / 2:
            raise SyncError(
                f"{self.me}: {broken}, {broken.report.get('rank')} reports", list(map(str, missing))
            ) from None

    def _where(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def _open(self, previous: Session | None, deadline: float) -> Session:
        """A session other than the previous one: opened by the host, looked for by everybody else."""
        store = Bounded(max(1.0, deadline - time.monotonic()))(self._store, deadline)
        bounded = Bounded(store_limit(self.time_limit))
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
        raise TimeoutError

    def _store(self, deadline: float) -> Any:
        left = timedelta(seconds=max(0.5, deadline - time.monotonic()))
        host, port = self.address
        if not self.hosts:
            if self._client is None:
                _await_listener(host, port, deadline)
                self._client = distributed.TCPStore(host, port, wait_for_workers=False, timeout=left)
            return self._client
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
        if not session.until(lambda: not self._missing(session), deadline - grace(self.time_limit)):
            self._give_up(session)
        return _names(session)

    def _missing(self, session: Session) -> list[str]:
        unknown = [f"every {role}" for role, world in session.worlds().items() if world is None]
        return unknown or session.absent("here", [name.replace(" ", "/") for name in _names(session)])

    def _give_up(self, session: Session) -> NoReturn:
        missing = [name.replace("/", " ") for name in self._missing(session)]
        what = f"{', '.join(missing)} did not come to {self._where()}"
        session.break_off(self.me, what, missing=missing)
        raise SyncError(f"{self.me}: {what} within the time limit of {self.time_limit:g} s", missing)


def _names(session: Session) -> list[str]:
    return [f"{role} {rank}" for role, world in session.worlds().items() for rank in range(world or 0)]


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
    """Returns once somebody listens there: a store's client that finds nobody sleeps for seconds between attempts."""
    while True:
        try:
            socket.create_connection((host, port), timeout=1.0).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise RuntimeError(f"nobody listens at {host}:{port} ({error})") from error
        time.sleep(0.05)

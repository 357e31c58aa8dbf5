# SPDX-License-Identifier: Apache-2.0
"""One meeting of all ranks at a TCP store: who is here, small messages, and word of a break.

A session ends when any rank reports a break. The next `connect` opens a new one under another prefix of the same
store, so that nothing left over from the old one (keys, late messages, half-made groups) can be mistaken for news.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch.distributed

from .bounded import Bounded, BoundedStore

distributed: Any = torch.distributed  # its stubs leave out the stores
ROLES = ("trainer", "rollout")
PART = 4 << 20  # the store refuses values above 8 MiB


class BrokenError(Exception):
    """Another rank has reported a break; ``report`` is what it said."""

    def __init__(self, report: dict[str, Any]) -> None:
        super().__init__(str(report.get("what", "")))
        self.report = report


class Session:
    """The keys of one session. Every method may raise RuntimeError where the store no longer answers.

    Parameters
    ----------
    store : Store
        The TCP store that trainer 0 hosts.
    token : str
        The prefix of this session's keys.
    bounded : Bounded
        What runs the calls to the store.
    """

    def __init__(self, store: Any, token: str, bounded: Bounded) -> None:
        self.token = token
        self.prefixed = distributed.PrefixStore(token, store)
        self.store = BoundedStore(self.prefixed, bounded)

    def until(self, ready: Callable[[], bool], deadline: float) -> bool:
        """Looks until ``ready()`` holds; False at the deadline; `BrokenError` where a rank has reported a break."""
        nap = 0.0005
        while not ready():
            self.look()
            if time.monotonic() > deadline:
                return False
            time.sleep(nap)
            nap = min(2 * nap, 0.02)
        return True

    def look(self) -> None:
        """Raises `BrokenError` where a rank has reported a break."""
        if self.is_broken():
            raise BrokenError(self.report())

    def is_broken(self) -> bool:
        return bool(self.store.check(["broken"]))

    def report(self) -> dict[str, Any]:
        """What the first rank to notice the break said; the text comes from another process, so it is only shown."""
        try:
            report = json.loads(self.store.get("broken"))
        except ValueError:
            return {}
        return report if isinstance(report, dict) else {}

    def break_off(self, rank: str, what: str, *, fatal: bool = False, missing: Sequence[str] = ()) -> None:
        """Reports a break; the first report stands."""
        said = json.dumps({"rank": rank, "what": what[:2000], "fatal": fatal, "missing": list(missing)})
        self.store.compare_set("broken", "", said)

    def enter(self, role: str, rank: int, world: int) -> tuple[int, int]:
        """Says that a rank is here: how often one of its role and rank came, and the world that its role agreed on."""
        agreed = int(self.store.compare_set(f"world/{role}", "", str(world)))
        return int(self.store.add(f"here/{role}/{rank}", 1)), agreed

    def worlds(self) -> dict[str, int | None]:
        """How many ranks each role has, None while no rank of it has come."""
        keys = {role: f"world/{role}" for role in ROLES}
        return {role: int(self.store.get(key)) if self.store.check([key]) else None for role, key in keys.items()}

    def absent(self, key: str, names: Sequence[str]) -> list[str]:
        """Those of ``names`` that have not left word under ``key``."""
        keys = [f"{key}/{name}" for name in names]
        if not keys or self.store.check(keys):
            return []
        return [name for name, full in zip(names, keys, strict=True) if not self.store.check([full])]

    def put(self, key: str, data: bytes) -> None:
        """Leaves a message of any length; its length is written last, so that a message that shows is whole."""
        for index, start in enumerate(range(0, len(data), PART)):
            self.store.set(f"{key}/{index}", data[start : start + PART])
        self.store.set(key, str(len(data)))

    def take(self, key: str, limit: int) -> bytes:
        """Reads a message that `put` left.

        Raises
        ------
        ValueError
            Where its length is not what was announced, or above ``limit``.
        """
        length = int(self.store.get(key))
        if not 0 <= length <= limit:
            raise ValueError(f"a message of {length} bytes was announced; at most {limit} are read")
        data = b"".join(self.store.get(f"{key}/{index}") for index in range(-(-length // PART)))
        if len(data) != length:
            raise ValueError(f"a message of {length} bytes was announced and {len(data)} came")
        return data

    def forget(self, keys: Iterable[str]) -> None:
        """Removes messages, so that many syncs leave the store as small as one."""
        for key in keys:
            length = int(self.store.get(key))
            for index in range(-(-length // PART)):
                self.store.delete_key(f"{key}/{index}")
            self.store.delete_key(key)

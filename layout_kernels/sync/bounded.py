# SPDX-License-Identifier: Apache-2.0
"""Calls that may never return (a store whose host is stopped answers nobody), bounded in time."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")


class Bounded:
    """Runs calls, one after another, in a thread of its own; one that does not return in time is given up.

    Parameters
    ----------
    seconds : float
        What a call may take. After one took longer, every further call raises at once, since the thread is stuck.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._stuck = False
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        weakref.finalize(self, self._calls.put, None)  # lets the thread end
        threading.Thread(target=_serve, args=(self._calls,), daemon=True, name="layout-kernels-store").start()

    def __call__(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """The call's result, or what it raised; RuntimeError where it did not return in time."""
        if self._stuck:
            raise RuntimeError("no answer to an earlier call")
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._calls.put((function, arguments, answer))
        try:
            result, error = answer.get(timeout=self._seconds)
        except queue.Empty:
            self._stuck = True
            raise RuntimeError(f"no answer within {self._seconds:g} s") from None
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def later(self, function: Callable[..., object], *arguments: Any) -> None:
        """A call whose result nobody waits for; an error of its own is met again by the next call that counts."""
        if not self._stuck:
            self._calls.put((function, arguments, queue.SimpleQueue()))


def _serve(calls: queue.SimpleQueue[Any]) -> None:
    while (call := calls.get()) is not None:
        function, arguments, answer = call
        try:
            answer.put((function(*arguments), None))
        except Exception as error:  # noqa: BLE001 - it is raised in the thread that waits for the answer
            answer.put((None, error))
        del call, function, arguments, answer


class BoundedStore:
    """The calls of a torch.distributed Store that a session needs, each bounded in time."""

    def __init__(self, store: Any, bounded: Bounded) -> None:
        self._store = store
        self._bounded = bounded

    def set(self, key: str, value: bytes | str) -> None:
        self._bounded(self._store.set, key, value)

    def set_later(self, key: str, value: bytes | str) -> None:
        """As `set`, without waiting for it."""
        self._bounded.later(self._store.set, key, value)

    def get(self, key: str) -> bytes:
        """The value of a key that is there."""
        return bytes(self._bounded(self._store.get, key))

    def check(self, keys: list[str]) -> bool:
        """Whether all of the keys are there."""
        return bool(self._bounded(self._store.check, keys))

    def add(self, key: str, amount: int) -> int:
        return int(self._bounded(self._store.add, key, amount))

    def compare_set(self, key: str, expected: str, wanted: str) -> bytes:
        """Sets the key where it is as expected (``""``: absent); what it holds afterwards."""
        return bytes(self._bounded(self._store.compare_set, key, expected, wanted))

    def delete_key(self, key: str) -> bool:
        return bool(self._bounded(self._store.delete_key, key))

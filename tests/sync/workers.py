# SPDX-License-Identifier: Apache-2.0
"""Processes that run functions for a test, and are killed rather than waited for."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from layout_kernels.testing import free_port

# The server imports torch once, and a worker is a fork of it: a killed one is back in a moment.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["torch", "layout_kernels.sync"])


def _serve(pipe: Any) -> None:
    import torch

    faulthandler.enable()
    torch.set_num_threads(1)
    state: dict[str, Any] = {}
    while True:
        function, arguments = pipe.recv()
        started = time.monotonic()
        try:
            answer = ("ok", function(state, *arguments))
        except Exception as error:  # noqa: BLE001 - the test looks at it
            answer = (type(error).__name__, f"{error}\n---\n{traceback.format_exc()}")
        pipe.send((*answer, time.monotonic() - started))


class Answer:
    """What a function returned, or the name and text of what it raised, and how long it took."""

    def __init__(self, kind: str, value: Any, seconds: float) -> None:
        self.kind, self.value, self.seconds = kind, value, seconds

    def get(self) -> Any:
        assert self.kind == "ok", f"{self.kind}: {self.value}"
        return self.value

    @property
    def message(self) -> str:
        assert self.kind != "ok", f"it did not raise, and returned {self.value}"
        return str(self.value).split("\n---\n")[0]


class Worker:
    """One process, with a state of its own that functions keep things in."""

    def __init__(self) -> None:
        self._pipe, theirs = SERVER.Pipe()
        self._process = SERVER.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def start(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._pipe.send((function, arguments))

    def answer(self, seconds: float = 60.0) -> Answer:
        if not self._pipe.poll(seconds):
            raise AssertionError(f"no answer within {seconds} s")
        try:
            return Answer(*self._pipe.recv())
        except EOFError:
            raise AssertionError("the process died") from None

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def go_on(self) -> None:
        """Wakes the process, which has stopped itself."""
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


class Workers(dict[str, Worker]):
    """Workers by name, such as ``"trainer 0"``; a killed one comes again at the next use."""

    def __missing__(self, name: str) -> Worker:
        self[name] = Worker()
        return self[name]

    def lose(self, name: str) -> None:
        self.pop(name).kill()

    def run(self, jobs: Mapping[str, tuple[Any, ...]], seconds: float = 60.0) -> dict[str, Answer]:
        """Runs ``{name: (function, *arguments)}`` at once."""
        for name, job in jobs.items():
            if not self[name].alive:
                self.lose(name)
            self[name].start(*job)
        return {name: self[name].answer(seconds) for name in jobs}

    def close(self) -> None:
        for name in list(self):
            self.lose(name)


def free_address() -> str:
    return f"127.0.0.1:{free_port()}"

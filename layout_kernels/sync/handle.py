# SPDX-License-Identifier: Apache-2.0
"""The handle of a sync that runs in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

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
        except BaseException as error:  # noqa: BLE001 - wait() raises it
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
        return 1.0 if self._report is not None else self._progress()

    @property
    def report(self) -> SyncReport | None:
        """The report, None as long as there is none."""
        return self._report


def same_stream(device: torch.device) -> Callable[[], Any]:
    """A context for another thread, in which work is queued on the stream that is current here."""
    if device.type == "cpu":
        return _nothing
    module = getattr(torch, device.type)
    stream = module.current_stream(device)
    return lambda: module.stream(stream)


@contextmanager
def _nothing() -> Iterator[None]:
    yield

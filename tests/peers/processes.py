# SPDX-License-Identifier: Apache-2.0
"""Run functions in processes of their own, with one time limit for all: the caller gets an answer in time, always."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

HERE = str(Path(__file__).parent)


@dataclass(frozen=True)
class Worker:
    """`function(*arguments)` in a process: an importable function whose result pickles (no torch tensors)."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class WorkerError(AssertionError):
    """A process raised, died or ran out of time; the message names it and shows what it said."""


def run(workers: list[Worker], logs: Path, *, seconds: float = 120, fresh: bool = False) -> dict[str, Any]:
    """{name: result} of all workers; `WorkerError` after the first failure or the time limit. No process is left.

    Parameters
    ----------
    logs : where each process writes what it prints, and its stack if it runs out of time
    fresh : start new interpreters instead of forks of one that has imported the peers already
    """
    context = multiprocessing.get_context("spawn" if fresh else "forkserver")
    os.environ["PYTHONPATH"] = os.pathsep.join([HERE, *sys.path])
    if not fresh:
        context.set_forkserver_preload(["preload"])
    processes, pipes = [], {}
    for worker in workers:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=_work, args=(worker, theirs, logs / f"{worker.name}.log", seconds), daemon=True
        )
        process.start()
        theirs.close()
        processes.append(process)
        pipes[ours] = worker.name
    try:
        return _collect(pipes, logs, time.monotonic() + seconds)
    finally:
        for process in processes:
            process.kill()
            process.join()


def _collect(pipes: dict[Connection, str], logs: Path, deadline: float) -> dict[str, Any]:
    results: dict[str, Any] = {}
    while len(results) < len(pipes):
        missing = {pipe: name for pipe, name in pipes.items() if name not in results}
        ready = wait(list(missing), timeout=max(0.0, deadline - time.monotonic()))
        if not ready:
            raise WorkerError(f"no answer in time from {sorted(missing.values())}" + _said(logs, missing.values()))
        for pipe in ready:
            name = missing[pipe]  # type: ignore[index]
            try:
                succeeded, results[name] = pipe.recv()  # type: ignore[union-attr]
            except EOFError:
                raise WorkerError(f"{name} ended without an answer" + _said(logs, [name])) from None
            if not succeeded:
                raise WorkerError(f"{name} failed:\n{results[name]}")
    return results


def _said(logs: Path, names: Any) -> str:
    found = [(name, logs / f"{name}.log") for name in names]
    return "".join(f"\n--- {name}\n{log.read_text()[-3000:]}" for name, log in found if log.exists())


def _work(worker: Worker, pipe: Connection, log: Path, seconds: float) -> None:
    output = log.open("w")
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    faulthandler.dump_traceback_later(max(1.0, seconds - 3), file=output)
    try:
        pipe.send((True, worker.function(*worker.arguments)))
    except BaseException:  # noqa: BLE001  whatever it is, the other side reports it
        pipe.send((False, traceback.format_exc()))
    output.flush()
    os._exit(0)  # a process group that lost a member may wait at exit


def free_port() -> int:
    """A TCP port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

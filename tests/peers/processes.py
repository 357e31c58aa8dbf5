# SPDX-License-Identifier: Apache-2.0
"""Run functions in processes of their own, with one time limit for all: the caller gets an answer in time, always.

Importing the peers takes seconds, so a host process imports them once and forks every worker. There are two hosts:
Megatron-Core decides at import whether TransformerEngine is there.
"""

from __future__ import annotations

import atexit
import faulthandler
import importlib
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

HERE = str(Path(__file__).parent)
HOST_STARTS = 120  # seconds for the imports of a host, on a busy machine


@dataclass(frozen=True)
class Worker:
    """`function(*arguments)` in a process: an importable function whose result pickles (no torch tensors)."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class WorkerError(AssertionError):
    """A process raised, died or ran out of time; the message names it and shows what it said."""


def run(workers: list[Worker], logs: Path, *, seconds: float = 120, transformer_engine: bool = False) -> dict[str, Any]:
    """{name: result} of all workers; `WorkerError` after the first failure or the time limit. No process is left.

    Parameters
    ----------
    logs : where each process writes what it prints, and its stack if it runs out of time
    transformer_engine : with the stand-in for TransformerEngine in place when Megatron-Core is imported
    """
    preload = "preload_transformer_engine" if transformer_engine else "preload"
    try:
        succeeded, answer = _ask(_host(preload), (workers, logs, seconds), HOST_STARTS + seconds + 30)
    except (OSError, EOFError) as error:
        raise WorkerError(f"the host process {preload!r} is gone: {error!r}") from error
    if not succeeded:
        raise WorkerError(answer)
    return answer  # type: ignore[no-any-return]


def _ask(host: Connection, job: tuple[list[Worker], Path, float], seconds: float) -> tuple[bool, Any]:
    host.send(job)
    if not host.poll(seconds):
        raise WorkerError(f"the host of {[worker.name for worker in job[0]]} does not answer")
    return host.recv()  # type: ignore[no-any-return]


_hosts: dict[str, Connection] = {}


def _host(preload: str) -> Connection:
    """The pipe to a host that has imported `preload`."""
    if preload not in _hosts:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, preload))
        process.start()
        theirs.close()
        _hosts[preload] = ours  # type: ignore[assignment]
        atexit.register(process.kill)
    return _hosts[preload]


def _serve(pipe: Connection, preload: str) -> None:
    """The life of a host: it ends with the process that started it, and its workers end by themselves in time."""
    # pytest puts the folder above on the path, where a folder of tests passes for a package of the same name.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(HERE).parent]
    broken = ""
    try:
        importlib.import_module(preload)
    except BaseException:  # noqa: BLE001  whatever it is, every run reports it
        broken = f"the peers cannot be imported:\n{traceback.format_exc()}"
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((False, broken) if broken else (True, _fork(*job)))
        except WorkerError as error:
            pipe.send((False, str(error)))


def _fork(workers: list[Worker], logs: Path, seconds: float) -> dict[str, Any]:
    context = multiprocessing.get_context("fork")
    processes, pipes = [], {}
    for worker in workers:
        ours, theirs = context.Pipe(duplex=False)
        log = logs / f"{worker.name}.log"
        process = context.Process(target=_work, args=(worker, theirs, log, seconds), daemon=True)
        process.start()
        theirs.close()
        processes.append(process)
        pipes[ours] = worker.name
    try:
        return _collect(pipes, logs, time.monotonic() + seconds + 10)
    except EOFError:
        for process in processes:
            process.join(0.5)  # the pipe closes a moment before there is an exit status; 0 means that it answered
        codes = {worker.name: process.exitcode for worker, process in zip(workers, processes, strict=True)}
        ended = [name for name, code in codes.items() if code]
        said = f"{ended} ended without an answer, exit status {[codes[name] for name in ended]}"
        raise WorkerError(said + _said(logs, ended)) from None
    finally:
        for process in processes:
            process.kill()
            process.join()


def _collect(pipes: dict[Any, str], logs: Path, deadline: float) -> dict[str, Any]:
    results: dict[str, Any] = {}
    while len(results) < len(pipes):
        missing = {pipe: name for pipe, name in pipes.items() if name not in results}
        ready: list[Any] = wait(list(missing), timeout=max(0.0, deadline - time.monotonic()))
        if not ready:
            raise WorkerError(f"no answer in time from {sorted(missing.values())}" + _said(logs, missing.values()))
        for pipe in ready:
            name = missing[pipe]
            succeeded, results[name] = pipe.recv()
            if not succeeded:
                raise WorkerError(f"{name} failed:\n{results[name]}")
    return results


def _said(logs: Path, names: Iterable[str]) -> str:
    found = [(name, logs / f"{name}.log") for name in names]
    return "".join(f"\n--- {name}\n{log.read_text()[-3000:]}" for name, log in found if log.exists())


def _work(worker: Worker, pipe: Connection, log: Path, seconds: float) -> None:
    output = log.open("w")
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    faulthandler.enable(output)
    faulthandler.dump_traceback_later(seconds, file=output, exit=True)
    try:
        pipe.send((True, worker.function(*worker.arguments)))
    except BaseException:  # noqa: BLE001  whatever it is, the other side reports it
        pipe.send((False, traceback.format_exc()))
    output.flush()
    os._exit(0)  # a process group that lost a member may wait at exit

# SPDX-License-Identifier: Apache-2.0
"""Starts the trainers and the engine, each with the Python of its own environment, and hears how they get on."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from layout_kernels.testing import free_port

from .settings import Settings

ROOT = Path(__file__).parents[2]
WAIT = 240  # seconds that a process waits for another: the training between two syncs, an engine's start
MARK = "@@ "  # begins a line that is an event and not a log
# The checkout is put behind everything else: an installed layout_kernels is the one to use.
BOOT = """
import sys
sys.path += [sys.argv[1], sys.argv[1] + "/tests/peers"]
from benchmarks.mtp_acceptance.child import main
main()
"""
PLAIN: Mapping[str, str] = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}
ENGINE: Mapping[str, str] = {
    **PLAIN,
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
Event = dict[str, Any]


class RunError(RuntimeError):
    """A process failed or ran out of time; the message names it and ends with what it said last."""


def say(event: str, **fields: Any) -> None:
    """In a child: tells the process that started it."""
    print(MARK + json.dumps({"event": event, **fields}), flush=True)


def meeting_place(folder: Path, opens: bool) -> str:
    """The address of the channel: whoever opens it takes a port that is free at that moment, the others learn it."""
    place = folder / "address"
    if opens:
        written = folder / "address.part"
        written.write_text(f"127.0.0.1:{free_port()}")
        written.rename(place)
    wait_for(place)
    return place.read_text()


def wait_for(path: Path, seconds: float = 300) -> None:
    """Until another process has written a file."""
    limit = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > limit:
            raise TimeoutError(f"{path} has not come within {seconds:.0f} s")
        time.sleep(0.2)


def run(
    settings: Settings,
    folder: Path,
    pythons: Mapping[str, str],
    hear: Callable[[str, Event], None],
    seconds: float = 1800,
) -> None:
    """Both trainers and the engine to their ends; results lie in the folder.

    Parameters
    ----------
    pythons : {"trainer": ..., "engine": ...}
        The Python of the environment with Megatron-Core, and of the one with vLLM.
    hear : called with (process, event)

    Raises
    ------
    RunError
        After the first failure or the time limit. No process is left.
    """
    children = {
        f"trainer{rank}": _start(pythons["trainer"], ["trainer", str(rank)], settings, folder, PLAIN)
        for rank in range(2)
    }
    children["engine"] = _start(pythons["engine"], ["engine", "0"], settings, folder, ENGINE)
    try:
        _listen(children, folder, hear, time.monotonic() + seconds)
    finally:
        _end(children)


def alone(role: str, settings: Settings, folder: Path, python: str, seconds: float = 300) -> list[Event]:
    """One process of the engine's environment to its end; what it said."""
    child = _start(python, [role, "0"], settings, folder, ENGINE)
    said: list[Event] = []
    try:
        _listen({role: child}, folder, lambda _name, event: said.append(event), time.monotonic() + seconds)
    finally:
        _end({role: child})
    return said


def _start(
    python: str, role: list[str], settings: Settings, folder: Path, environment: Mapping[str, str]
) -> subprocess.Popen[str]:
    command = [python, "-c", BOOT, str(ROOT), *role, settings.to_json(), str(folder)]
    # In the folder of the run: the current directory comes first where Python looks for modules.
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


def _end(children: Mapping[str, subprocess.Popen[str]]) -> None:
    for child in children.values():
        child.kill()
    for child in children.values():
        child.wait()


def _listen(children: Mapping[str, Any], folder: Path, hear: Callable[[str, Event], None], limit: float) -> None:
    heard: queue.Queue[tuple[str, str | None]] = queue.Queue()
    for name, child in children.items():
        threading.Thread(target=_read, args=(name, child, heard, folder / f"{name}.log"), daemon=True).start()
    running = set(children)
    while running:
        try:
            name, line = heard.get(timeout=max(0.0, limit - time.monotonic()))
        except queue.Empty:
            for silent in running:
                children[silent].send_signal(signal.SIGABRT)
                children[silent].wait()
            raise RunError(f"no end in time of {sorted(running)}{_last_words(folder, running)}") from None
        if line is not None:
            hear(name, json.loads(line.removeprefix(MARK)))
        elif children[name].wait() != 0:
            raise RunError(f"{name} failed, exit status {children[name].returncode}{_last_words(folder, {name})}")
        else:
            running.discard(name)


def _read(name: str, child: Any, heard: queue.Queue[tuple[str, str | None]], log: Path) -> None:
    with log.open("w") as kept:
        for line in child.stdout:
            if line.startswith(MARK):
                heard.put((name, line))
            else:
                kept.write(line)
                kept.flush()
    child.stdout.close()
    heard.put((name, None))


def _last_words(folder: Path, names: set[str]) -> str:
    return "".join(f"\n--- {name}\n{(folder / f'{name}.log').read_text()[-4000:]}" for name in sorted(names))

# SPDX-License-Identifier: Apache-2.0
"""Start the processes of a demo, listen to them, and say how it went."""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from ..errors import LayoutError
from ..testing import free_port
from .settings import Settings

Event = dict[str, Any]
PROGRAM = ("-m", "layout_kernels.demo.rank")  # one rank


@dataclass
class Outcome:
    """What all ranks said."""

    settings: Settings
    reports: list[Event] = field(default_factory=list)
    verified: list[Event] = field(default_factory=list)
    plain: list[Event] = field(default_factory=list)
    ready: list[Event] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Every rank came to its end, and every target of every step is right."""
        whole = len(self.verified) == self.settings.steps * self.settings.rollouts
        return whole and not self.failures and not any(event["different"] for event in self.verified)

    def steps(self) -> Iterator[Event]:
        """One line for each sync: the slowest rollout's seconds, what each stage took, what was verified."""
        plain = max((event["seconds"] for event in self.plain), default=0.0)
        for step in range(1, self.settings.steps + 1):
            mine = [event for event in self.reports if event["step"] == step]
            received = [event["report"] for event in mine if event["role"] == "rollout"]
            if not received:
                continue
            checked = [event for event in self.verified if event["step"] == step]
            stages = {stage for event in mine for stage in event["report"]["stages"]}
            seconds = max(report["seconds"] for report in received)
            nbytes = max(report["nbytes"] for report in received)
            yield {
                "step": step,
                "nbytes": nbytes,
                "seconds": seconds,
                "stages": {s: max(event["report"]["stages"].get(s, 0.0) for event in mine) for s in sorted(stages)},
                "gigabytes_per_second": nbytes / seconds / 1e9,
                "plain_broadcast_gigabytes_per_second": self.plain[0]["nbytes"] / plain / 1e9 if plain else None,
                "tensors_verified": sum(event["tensors"] - len(event["different"]) for event in checked),
                "tensors": sum(event["tensors"] for event in checked),
                "different": sorted({name for event in checked for name in event["different"]}),
            }

    def to_json(self) -> Event:
        """Plain data for machines."""
        return {
            "good": self.good,
            "title": self.settings.title,
            "train": self.settings.train,
            "experts": self.settings.experts,
            "rollout": self.settings.rollout,
            "engine": self.settings.engine,
            "ranks": self.ready,
            "steps": list(self.steps()),
            "failures": self.failures,
        }


def run(settings: Settings, listen: Callable[[Event], None]) -> Outcome:
    """Run a demo to its end; ``listen`` hears every event.

    Raises
    ------
    LayoutError
        Where the choices do not fit the model, or a dump is wanted without safetensors. No process was started.
    """
    if settings.dump and importlib.util.find_spec("safetensors") is None:
        raise LayoutError("--dump needs safetensors: install layout-kernels[files]")
    for role, count in (("trainer", settings.trainers), ("rollout", settings.rollouts)):
        for rank in range(count):
            settings.specs(role, rank)
    settings = replace(settings, address=f"127.0.0.1:{free_port()}")
    outcome = Outcome(settings)
    places = {"report": outcome.reports, "verified": outcome.verified, "plain": outcome.plain, "ready": outcome.ready}
    with tempfile.TemporaryDirectory() as folder:
        ranks = _start(settings, Path(folder))
        try:
            for event in _events(ranks):
                listen(event)
                places.get(event["event"], []).append(event)
                if event["event"] == "ended" and event["status"]:
                    outcome.failures.append(f"{event['who']} ended with status {event['status']}:\n{event['said']}")
                    break
        finally:
            for _, process, _ in ranks:
                process.kill()
                process.wait()
    return outcome


Ranks = list[tuple[str, "subprocess.Popen[str]", Path]]


def _start(settings: Settings, folder: Path) -> Ranks:
    # A rank must import what this process imported, also where the working directory is a checkout that is not built.
    places = os.pathsep.join(os.path.abspath(place) for place in sys.path)
    surroundings: dict[str, Any] = {"cwd": folder, "env": {**os.environ, "PYTHONPATH": places}}
    ranks = []
    for role, count in (("trainer", settings.trainers), ("rollout", settings.rollouts)):
        for rank in range(count):
            who, errors = f"{role} {rank}", folder / f"{role}{rank}"
            command = [sys.executable, *PROGRAM, settings.to_json(), role, str(rank)]
            with errors.open("w") as file:
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True, **surroundings)
                ranks.append((who, process, errors))
    return ranks


def _events(ranks: Ranks) -> Iterator[Event]:
    """Everything that the ranks say, as it comes, and how each of them ended."""
    heard: queue.Queue[Event] = queue.Queue()
    for who, process, errors in ranks:
        threading.Thread(target=_hear, args=(who, process, errors, heard), daemon=True).start()
    ended = 0
    while ended < len(ranks):
        event = heard.get()
        ended += event["event"] == "ended"
        yield event


def _hear(who: str, process: subprocess.Popen[str], errors: Path, heard: queue.Queue[Event]) -> None:
    stream: IO[str] | None = process.stdout
    assert stream is not None
    with stream:
        for line in stream:
            heard.put(json.loads(line))
    status = process.wait()
    said = "\n".join(errors.read_text().splitlines()[-12:]) if status and errors.exists() else ""
    heard.put({"event": "ended", "who": who, "status": status, "said": said})

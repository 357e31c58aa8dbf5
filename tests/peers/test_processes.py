# SPDX-License-Identifier: Apache-2.0
"""The time limit of these tests: a process that raises, dies or hangs is named, at once or in time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import processes
import pytest

pytestmark = pytest.mark.peers


def answer(value: int) -> int:
    return value


def complain() -> None:
    raise ValueError("the reason")


def die() -> None:
    print("last words", flush=True)
    os._exit(3)


def hang() -> None:
    time.sleep(600)


def test_answers_are_collected_by_name(tmp_path: Path) -> None:
    workers = [processes.Worker(f"worker{n}", answer, (n,)) for n in range(2)]
    assert processes.run(workers, tmp_path) == {"worker0": 0, "worker1": 1}


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (complain, "bad failed.*ValueError: the reason"),
        (die, r"\['bad'\] ended without an answer, exit status \[3\].*last words"),
    ],
)
def test_one_failure_ends_all_at_once(function: object, said: str, tmp_path: Path) -> None:
    workers = [processes.Worker("bad", function, ()), processes.Worker("waiting", hang, ())]  # type: ignore[arg-type]
    begun = time.monotonic()
    with pytest.raises(processes.WorkerError, match="(?s)" + said):
        processes.run(workers, tmp_path)
    assert time.monotonic() - begun < 60


def test_a_process_that_hangs_is_named_with_its_stack(tmp_path: Path) -> None:
    workers = [processes.Worker("stuck", hang, ()), processes.Worker("fine", answer, (1,))]
    with pytest.raises(processes.WorkerError, match=r"(?s)\['stuck'\] ended without an answer.*Timeout.*in hang"):
        processes.run(workers, tmp_path, seconds=5)

# SPDX-License-Identifier: Apache-2.0
"""The demo as a user runs it: exit status, JSON, and what it dumps, checked by somebody who knows only files."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

import layout_kernels as lk
from layout_kernels.demo import run as demo_run
from layout_kernels.demo.settings import parse_mesh, settings
from layout_kernels.testing import assert_same_bytes, convert

SMALL = ["--scale", "4000", "--steps", "2"]
BROKEN = """
import layout_kernels.demo.rank as rank
right = rank.Rank.train
def wrong(self, step):
    right(self, step)
    if self.role == "trainer" and step == 2:
        weight = next(t for name, t in self.tensors.items() if name.endswith("weight2"))
        weight.view(-1)[:2] = weight.view(-1)[:2].flip(0)
rank.Rank.train = wrong
rank.main()
"""


def command_line(*arguments: str) -> tuple[int, str]:
    code = "from layout_kernels.cli import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    return done.returncode, done.stdout + done.stderr


def choose(**changed: Any) -> Any:
    chosen = {
        "model": "glm-4.7-flash", "config": None, "scale": 4000, "steps": 2, "train": "tp=2,ep=2", "experts": "grouped",
        "rollout": "tp=2", "engine": "vllm-ascend", "transport": "broadcast", "device": "cpu", "dump": None,
    }  # fmt: skip
    return settings(**(chosen | changed))


def test_demo_verifies_every_byte_and_dumps_what_it_moved(tmp_path: Path) -> None:
    status, said = command_line("demo", *SMALL, "--json", "--dump", str(tmp_path))
    assert status == 0, said
    outcome = json.loads(said)
    assert [step["step"] for step in outcome["steps"]] == [1, 2]
    assert all(step["tensors_verified"] == step["tensors"] > 0 and not step["different"] for step in outcome["steps"])
    for step in (1, 2):
        assert_converted(tmp_path / f"step{step}")
    first, second = (load(tmp_path / f"step{step}", "trainer")[1] for step in (1, 2))
    assert any(not first[key].equal(second[key]) for key in first)  # the weights did change in between


def load(folder: Path, role: str) -> tuple[dict[Any, lk.Spec], dict[Any, Any]]:
    specs, tensors = {}, {}
    for path in sorted(folder.glob(f"{role}*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name, text in file.metadata().items():
                specs[path.stem, name] = lk.Spec.from_json(json.loads(text))
                tensors[path.stem, name] = file.get_tensor(name)
    return specs, tensors


def assert_converted(folder: Path) -> None:
    sources, held = load(folder, "trainer")
    targets, made = load(folder, "rollout")
    assert len({rank for rank, _ in sources}) == 2
    assert len({rank for rank, _ in targets}) == 2
    for key, expected in convert(sources, held, targets, made).items():
        assert_same_bytes(made[key], expected, key)


def test_a_difference_ends_with_status_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_run, "PROGRAM", ("-c", BROKEN))
    outcome = demo_run.run(choose(), lambda event: None)
    assert not outcome.failures
    assert not outcome.good
    first, second = outcome.steps()
    assert not first["different"]
    assert any("w2_weight" in name for name in second["different"])


def test_a_rank_that_dies_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_run, "PROGRAM", ("-c", "raise SystemExit('no weights here')"))
    outcome = demo_run.run(choose(), lambda event: None)
    assert not outcome.good
    assert "no weights here" in outcome.failures[0]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"transport": "pigeon"}, "broadcast"),
        ({"train": "tp=2,pe=2"}, "'pe=2' is not one of tp=N, ep=N"),
        ({"model": "glm-4.7-flsh"}, "glm-4.7-flash"),
        ({"steps": 0}, "at least 1"),
        ({"train": "tp=2,ep=3"}, "do not cover"),
    ],
)
def test_choices_are_refused_by_name(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(lk.LayoutError, match=said):
        choose(**changed)


def test_refusals_of_the_command_line_are_one_sentence() -> None:
    status, said = command_line("demo", "--transport", "pigeon")
    assert status == 2
    assert "pigeon" in said
    assert "Traceback" not in said


def test_backends_says_what_runs() -> None:
    status, said = command_line("backends", "--json")
    assert status == 0
    assert {"cpu", "reference"} <= json.loads(said).keys()


def test_plan_tells_what_would_move() -> None:
    status, said = command_line("plan", "--scale", "4000", "--json")
    assert status == 0, said
    found = json.loads(said)
    held = {rank: choose().specs("trainer", rank) for rank in range(2)}
    # Two replicas of a tensor are sent once: equal Specs under one name, whichever rank they are on.
    distinct = {(name, spec) for specs in held.values() for name, spec in specs.items()}
    nbytes = sum(math.prod(spec.shape()) * (spec.dtype or torch.bfloat16).itemsize for _, spec in distinct)
    assert nbytes <= found["wire_bytes"] < 1.02 * nbytes  # and what aligns the entries of a bucket
    assert sum(rank["sent_bytes"] for rank in found["trainers"]) == found["wire_bytes"]
    assert abs(found["trainers"][0]["sent_bytes"] - found["trainers"][1]["sent_bytes"]) < 0.1 * nbytes


def test_plan_explains_a_rollout() -> None:
    status, said = command_line("plan", "--scale", "4000", "--explain", "0")
    assert status == 0
    assert "-> 'model.layers.1.mlp.experts.routed_experts.w13_weight' of layers.experts.fc1.weight" in said


def test_meshes() -> None:
    assert parse_mesh("--train", "tp=2, ep=4", ("tp", "ep")) == {"tp": 2, "ep": 4}

# SPDX-License-Identifier: Apache-2.0
"""From what the processes left behind to one row for each scenario and round."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy

from .scenarios import SCENARIOS

TRUTH = "fresh"
NEAR_TIE = 1e-5  # probes in which a router of the trainer comes nearer to a tie are not compared with it


@dataclass(frozen=True)
class Row:
    """What one way of moving the weights led to, after one round of training.

    Attributes
    ----------
    acceptance : accepted tokens over drafts, out of the engine's own counters
    greedy_equal : share of generated tokens that are those of the fresh engine
    target_difference, draft_difference : largest difference between a logit of the trainer and of the engine, over the
        probes that are compared
    identical : whether every logit of target and draft in a generation has the bits of the fresh engine's
    probes_identical : the same of the logits after all probes
    compared : how many probes
    seconds : of the sync; of the engine's start where it is fresh (without imports and conversion); of the reload
    """

    round: int
    scenario: str
    title: str
    drafts: int
    accepted: int
    acceptance: float
    greedy_equal: float
    target_difference: float
    draft_difference: float
    tokens_per_second: float
    seconds: float
    identical: bool
    probes_identical: bool
    compared: int


def read(folder: Path) -> list[Row]:
    """All rows, in the order of the scenarios, round by round."""
    records = {(r["round"], r["scenario"]): r for r in json.loads((folder / "engine.json").read_text())}
    order = list(SCENARIOS)
    keys = sorted(records, key=lambda key: (key[0], order.index(key[1])))
    with numpy.load(folder / "engine.npz") as engine, numpy.load(folder / "trainer.npz") as trainer:
        return [_row(*key, records, engine, trainer) for key in keys]


def _row(number: int, scenario: str, records: dict[tuple[int, str], Any], engine: Any, trainer: Any) -> Row:
    record, truth = records[number, scenario], records[number, TRUTH]
    logits = {part: engine[f"{number} {scenario} {part}"] for part in ("target", "draft")}
    clear = trainer[f"{number} margin"] > NEAR_TIE
    differences = {part: numpy.abs(logits[part] - trainer[f"{number} {part}"])[clear].max() for part in logits}
    same = numpy.array(record["tokens"]) == numpy.array(truth["tokens"])
    return Row(
        round=number + 1,
        scenario=scenario,
        title=SCENARIOS[scenario].title,
        drafts=record["drafts"],
        accepted=record["accepted"],
        acceptance=record["accepted"] / record["drafts"],
        greedy_equal=float(same.mean()),
        target_difference=float(differences["target"]),
        draft_difference=float(differences["draft"]),
        tokens_per_second=record["tokens_per_second"],
        seconds=record["seconds"],
        identical=record["digests"] == truth["digests"],
        probes_identical=all(logits[part].tobytes() == engine[f"{number} {TRUTH} {part}"].tobytes() for part in logits),
        compared=int(clear.sum()),
    )


def to_json(rows: list[Row]) -> list[dict[str, Any]]:
    """Plain data."""
    return [asdict(row) for row in rows]


def by_scenario(rows: list[Row]) -> dict[str, list[Row]]:
    """The rounds of each scenario, scenarios in order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.scenario, []).append(row)
    return found

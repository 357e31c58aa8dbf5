# SPDX-License-Identifier: Apache-2.0
"""Real Megatron-Core trains, real vLLM generates with its MTP draft; a sync in between, and known mistakes.

Nothing of this project judges: the truth is an engine that vLLM itself loads from a checkpoint, the trainer's own
logits, and the engine's own counters of accepted drafts. `python -m benchmarks.mtp_acceptance` is the same at a size to
look at.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2]))  # behind everything else: benchmarks/ of this checkout

from benchmarks.mtp_acceptance import environments, processes, results, scenarios
from benchmarks.mtp_acceptance.settings import Settings

VARIABLE = environments.VARIABLES["engine"]
pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(
        not os.environ.get(VARIABLE),
        reason=f"no vLLM: set {VARIABLE} to the Python of an environment of tests/peers/requirements-vllm.txt",
    ),
]

AGREE = 1e-4  # between the trainer's logits and the engine's, which add in different orders
SHOWS = 1e-2  # a rounded bias changes few choices of experts; every other mistake is off by more than 1
RUNS = {
    "GLM-4.5-like, grouped experts": Settings(language="easy", rounds=2, steps=50),
    "GLM-4.7-Flash-like, Megatron's experts": Settings(
        "glm-4.7-flash-like", "sequential", language="easy", topology="ep2", rounds=2, steps=50
    ),
}
Rows = dict[str, list[results.Row]]


@pytest.fixture(scope="module", params=list(RUNS))
def rows(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    folder = tmp_path_factory.mktemp("run")
    pythons = environments.named(trainer=sys.executable)
    assert not environments.missing(pythons)
    processes.run(RUNS[request.param], folder, pythons, lambda _process, _event: None, seconds=360)
    return results.by_scenario(results.read(folder))


def test_our_sync_leaves_the_bits_of_a_fresh_engine(rows: Rows) -> None:
    for ours, fresh in zip(rows["ours"], rows["fresh"], strict=True):
        assert ours.greedy_equal == 1, "token for token"
        assert (ours.accepted, ours.drafts) == (fresh.accepted, fresh.drafts), "draft for draft"
        assert ours.identical, "logit for logit"
        assert ours.probes_identical
        assert max(ours.target_difference, ours.draft_difference) < AGREE, "the trainer's logits"
        assert ours.compared > 80


def test_training_made_the_draft_worth_having(rows: Rows) -> None:
    assert rows["none"][-1].acceptance < 0.1, "the engine starts from weights that know nothing"
    assert rows["fresh"][-1].acceptance > 0.9


def test_mistakes_in_the_draft_show_in_its_logits_and_never_in_a_greedy_token(rows: Rows) -> None:
    mistaken = [name for name in rows if name in ("no-draft", "halves") or name.endswith("-draft")]
    assert len(mistaken) >= 4
    for name in mistaken:
        assert all(row.greedy_equal == 1 for row in rows[name]), name
        assert all(row.target_difference < AGREE for row in rows[name]), name
        assert max(row.draft_difference for row in rows[name]) > SHOWS, name
        assert not any(row.identical for row in rows[name]), name


def test_mistakes_everywhere_show_in_the_logits_of_both(rows: Rows) -> None:
    mistaken = [name for name in ("view", "dim1", "gate-up", "bias", "reload", "none") if name in rows]
    assert len(mistaken) >= 4
    for name in mistaken:
        assert max(row.draft_difference for row in rows[name]) > SHOWS, name
        # A rounded bias need not change the last choice of any probe in the one layer of the target that has experts.
        assert name == "bias" or max(row.target_difference for row in rows[name]) > SHOWS, name


def test_greedy_tokens_show_what_scrambles_the_target(rows: Rows) -> None:
    for name in ("view", "dim1", "gate-up", "reload", "none"):
        for row in rows.get(name, []):
            assert row.greedy_equal < 0.99, name


def test_acceptance_falls_to_nothing_without_a_draft_and_with_its_halves_exchanged(rows: Rows) -> None:
    assert rows["no-draft"][-1].acceptance < 0.1
    assert rows["halves"][-1].acceptance < 0.1


def test_the_wrong_specs_say_what_a_mistaken_reader_does() -> None:
    import torch

    import layout_kernels as lk

    experts, hidden, width, ranks = 8, 16, 4, 2
    held, weights = {}, []
    for rank in range(ranks):
        held[f"mtp.{rank}"] = lk.Spec(
            "e/ep h ([gate up] i/etp)",
            declared="h (e/ep [gate up] i/etp)",
            of=scenarios.FC1,
            dims={"e": experts, "h": hidden, "i": width},
            mesh={"ep": (ranks, rank), "etp": (1, 0)},
        )
        weights.append(torch.randn(held[f"mtp.{rank}"].shape()))
    joined = torch.cat(weights, dim=1).view(experts, hidden, 2 * width).transpose(1, 2)
    viewed = torch.cat([weight.view(experts // ranks, 2 * width, hidden) for weight in weights])
    wanted = lk.Spec("e ([gate up] i) h", of=scenarios.FC1, dims={"e": experts, "h": hidden, "i": width})
    for name, expected in (("dim1-draft", joined), ("view-draft", viewed)):
        believed, tensors = scenarios.SCENARIOS[name].held(held, dict(zip(held, weights, strict=True)))
        made = torch.empty(wanted.shape())
        lk.compile(believed, {"w13": wanted}).run(tensors, {"w13": made})
        assert torch.equal(made, expected), name


def test_engines_that_must_not_be_written_are_refused_by_name(tmp_path: Path) -> None:
    said = processes.alone("refused", Settings(), tmp_path, environments.named()["engine"])
    messages = {event["event"]: event["message"] for event in said}
    wanted = {
        "packed linears": "shape (0,)",
        "another processor": "'CPUUnquantizedExperts amx'",
        "zentorch": "zentorch",
        "a head that is not read": "'lm_head.weight'",
        "an unknown method": "'NewLinearMethod'",
        "expert parallelism": "4 of 8 experts",
        "sleeping": "sleeps",
        "a draft that is not sent": "draft.model.layers.2",
    }
    for what, words in wanted.items():
        assert messages[what] is not None, f"{what}: was not refused"
        assert words in messages[what]
    allowed = set(messages) - set(wanted)
    assert allowed == {"nothing", "a draft left out", "no draft"}
    assert all(messages[what] is None for what in allowed)
    assert said[-1]["drafts"] == []
    assert said[-1]["tensors"] > 20

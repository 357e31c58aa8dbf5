# SPDX-License-Identifier: Apache-2.0
"""What is refused, with nothing written; and what happens where a rank never comes, or is lost in the middle."""

from __future__ import annotations

import jobs
import pytest
import torch
from test_sync import join, sync_all
from workers import Answer, Workers, free_address

LIMIT = 6.0


def refused(workers: Workers, names: list[str], version: int = 1) -> list[str]:
    answers = workers.run({name: (jobs.sync_as_it_is, version, {}) for name in names})
    for answer in answers.values():
        assert answer.kind == "LayoutError", answer.value
        assert answer.seconds < LIMIT / 2
    return [answer.message for answer in answers.values()]


def test_layouts_that_disagree_are_refused_on_all_ranks(workers: Workers) -> None:
    names = join(workers, limit=LIMIT)
    workers.run({"trainer 1": (jobs.replace_spec, "layer.norm", {"of": "norms"})})["trainer 1"].get()
    messages = refused(workers, names)
    assert all("'norms'" in message for message in messages)
    workers.run({"trainer 1": (jobs.replace_spec, "layer.norm", {"of": "norm"})})["trainer 1"].get()
    sync_all(workers, names, 1)


def test_a_dtype_that_differs_is_refused_on_all_ranks(workers: Workers) -> None:
    names = join(workers, limit=LIMIT)
    workers.run({"rollout 1": (jobs.replace_tensor, "norm", torch.float32)})["rollout 1"].get()
    messages = refused(workers, names)
    assert all("rollout 1: target 'norm' is torch.float32" in message for message in messages)
    assert "torch.bfloat16" in messages[0]


def test_a_replica_of_another_dtype_is_refused(workers: Workers) -> None:
    names = join(workers, limit=LIMIT)
    workers.run({"trainer 1": (jobs.replace_tensor, "layer.norm", torch.float16)})["trainer 1"].get()
    assert all("'layer.norm'" in message and "torch.float16" in message for message in refused(workers, names))


def test_a_missing_expert_is_refused_on_all_ranks(workers: Workers) -> None:
    names = join(workers, limit=LIMIT)
    workers.run({"trainer 1": (jobs.drop, "layer.experts")})["trainer 1"].get()
    messages = refused(workers, names)
    assert all("target 'w13'" in message and "e 2..3" in message for message in messages)


def test_unwanted_elements_are_refused_unless_allowed(workers: Workers) -> None:
    names = join(workers, limit=LIMIT)
    drop = {name: (jobs.drop, "norm") for name in names[2:]}
    workers.run(drop)
    assert all("layer.norm" in message and "unused" in message for message in refused(workers, names))
    names = join(workers, limit=LIMIT, unused="allow")
    workers.run(drop)
    reports = workers.run({name: (jobs.sync_as_it_is, 1, {}) for name in names})
    assert {answer.kind for answer in reports.values()} == {"ok"}


def test_a_wrong_shape_names_the_tensor_and_the_rank(workers: Workers) -> None:
    names = join(workers, limit=LIMIT)
    workers.run({"rollout 0": (jobs.replace_spec, "norm", {"dims": {"h": 15}})})["rollout 0"].get()
    assert all("rollout 0: tensor 'norm' has shape (16,)" in message for message in refused(workers, names))


def test_versions_that_differ_are_refused(workers: Workers) -> None:
    names = join(workers, limit=LIMIT)
    sync_all(workers, names, 1)
    calls = {name: (jobs.sync_as_it_is, 3 if name == "rollout 1" else 2, {}) for name in names}
    for answer in workers.run(calls).values():
        assert answer.message.startswith("rollout 1 says version 3, trainer 0 says 2")
    sync_all(workers, names, 3)


@pytest.mark.parametrize(("rank", "name"), [("trainer 1", "layer.norm"), ("rollout 0", "w13")])
def test_a_tensor_that_moved_is_bound_again(workers: Workers, rank: str, name: str) -> None:
    names = join(workers, limit=LIMIT)
    sync_all(workers, names, 1)
    assert sync_all(workers, names, 2)[rank]["stages"].get("plan") is None
    workers.run({rank: (jobs.move_tensor, name)})[rank].get()
    assert sync_all(workers, names, 3)[rank]["stages"]["plan"] > 0


def test_abort_on_one_rank_ends_the_sync_on_all(workers: Workers) -> None:
    names = join(workers, limit=LIMIT, bucket_bytes=512)
    sync_all(workers, names, 1)
    workers.run({"rollout 0": (jobs.abort_at_bucket, 2)})["rollout 0"].get()
    answers = workers.run({name: (jobs.sync, 2) for name in names})
    for answer in answers.values():
        assert "enough of this" in answer.message
        assert answer.seconds < LIMIT / 2
    sync_all(workers, names, 2)


def test_a_rank_that_never_connects_is_named(workers: Workers) -> None:
    address = free_address()
    calls: dict[str, tuple[object, ...]] = {}
    for rank in range(2):
        calls[f"trainer {rank}"] = (jobs.join, address, "trainer", rank, 2, LIMIT, {})
    calls["rollout 1"] = (jobs.join, address, "rollout", 1, 2, LIMIT, {})
    workers.run({name: (jobs.ready,) for name in calls})
    for answer in workers.run(calls).values():
        assert "rollout 0 did not come" in answer.message
        assert answer.seconds < LIMIT + 0.5


def test_a_rank_that_never_syncs_is_named(workers: Workers) -> None:
    names = join(workers, limit=LIMIT)
    present = [name for name in names if name != "rollout 0"]
    for answer in workers.run({name: (jobs.sync_as_it_is, 1, {}) for name in present}).values():
        assert "rollout 0" in answer.message
        assert answer.seconds < LIMIT + 0.5
    sync_all(workers, names, 1)  # it comes late, and all connect again


def break_off(workers: Workers, names: list[str], lost: str, job: object, bucket: int) -> dict[str, Answer]:
    """A whole sync, then one in which ``lost`` goes at some bucket; the answers of the others."""
    sync_all(workers, names, 1)
    workers.run({lost: (job, bucket)})[lost].get()
    workers[lost].start(jobs.sync, 2)
    left = [name for name in names if name != lost]
    answers = workers.run({name: (jobs.sync, 2) for name in left})
    for name, answer in answers.items():
        assert answer.kind == "SyncError", f"{name}: {answer.value}"
        assert lost in answer.message
        assert answer.seconds <= LIMIT + 0.5
    return answers


def check_marks(workers: Workers, lost: str) -> None:
    """A receiver that is left says what it holds, and says the truth."""
    for name in {"rollout 0", "rollout 1"} - {lost}:
        workers.run({name: (jobs.check_state, 1, 2)})[name].get()


def come_back(workers: Workers, names: list[str], lost: str, address: str, bucket_bytes: int) -> None:
    """The lost rank starts again; nobody else does; the next sync is whole."""
    workers.lose(lost)
    workers.run({lost: (jobs.ready,)})
    role, rank = lost.split()
    options = {"bucket_bytes": bucket_bytes} if role == "trainer" else {}
    workers[lost].start(jobs.join_and_sync, address, role, int(rank), 2, LIMIT, options, 3)
    others = [name for name in names if name != lost]
    answers = workers.run({name: (jobs.sync, 3) for name in others})
    answers[lost] = workers[lost].answer()
    for answer in answers.values():
        answer.get()


@pytest.mark.parametrize(("lost", "bucket"), [("trainer 0", 1), ("trainer 1", 3), ("rollout 1", 2)])
def test_a_killed_rank(workers: Workers, lost: str, bucket: int) -> None:
    address = free_address()
    names = join(workers, limit=LIMIT, address=address, bucket_bytes=512)
    break_off(workers, names, lost, jobs.kill_me_at_bucket, bucket)
    check_marks(workers, lost)
    come_back(workers, names, lost, address, 512)


@pytest.mark.parametrize("lost", ["trainer 0", "rollout 0"])
def test_a_stopped_rank_that_goes_on_later(workers: Workers, lost: str) -> None:
    names = join(workers, limit=LIMIT, bucket_bytes=512)
    break_off(workers, names, lost, jobs.stop_me_at_bucket, 2)
    workers[lost].go_on()
    assert workers[lost].answer().kind == "SyncError"
    check_marks(workers, "nobody")
    sync_all(workers, names, 3)


def test_an_exception_in_one_rank_ends_all_at_once(workers: Workers) -> None:
    names = join(workers, limit=LIMIT, bucket_bytes=512)
    sync_all(workers, names, 1)
    workers.run({"trainer 1": (jobs.fail_at_bucket, 2)})["trainer 1"].get()
    answers = workers.run({name: (jobs.sync, 2) for name in names})
    for name, answer in answers.items():
        assert "the disk is on fire" in answer.message, (name, answer.message)
        assert answer.seconds < LIMIT / 2
    sync_all(workers, names, 2)

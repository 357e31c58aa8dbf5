# SPDX-License-Identifier: Apache-2.0
"""Whole syncs among processes over gloo, against a listing of the model by plain indexing."""

from __future__ import annotations

from typing import Any

import jobs
import pytest
from workers import Workers, free_address


def join(
    workers: Workers, trainers: int = 2, rollouts: int = 2, limit: float = 20.0, address: str = "", **options: Any
) -> list[str]:
    address = address or free_address()
    names = [f"{role} {r}" for role, world in (("trainer", trainers), ("rollout", rollouts)) for r in range(world)]
    workers.run({name: (jobs.ready,) for name in names})
    calls = {f"trainer {r}": (jobs.join, address, "trainer", r, trainers, limit, options) for r in range(trainers)}
    calls |= {f"rollout {r}": (jobs.join, address, "rollout", r, rollouts, limit, {}) for r in range(rollouts)}
    for name, answer in workers.run(calls).items():
        assert answer.get() == name
    return names


def sync_all(workers: Workers, names: list[str], version: int, **options: Any) -> dict[str, Any]:
    answers = workers.run({name: (jobs.sync, version, options) for name in names})
    return {name: answer.get() for name, answer in answers.items()}


@pytest.mark.parametrize("bucket_bytes", [64, 200, 1024, None])
def test_every_byte_arrives_at_every_step(workers: Workers, bucket_bytes: int | None) -> None:
    names = join(workers, bucket_bytes=bucket_bytes)
    for version in (1, 2, 3):
        reports = sync_all(workers, names, version)
    sent = [reports[name]["nbytes"] for name in names[:2]]
    received = [reports[name]["nbytes"] for name in names[2:]]
    assert received == [sum(sent)] * 2  # every byte once, to everyone
    if bucket_bytes:
        assert all(report["extra_bytes"] <= 2 * max(64, bucket_bytes) for report in reports.values())


def test_ranks_that_hold_nothing_and_handles(workers: Workers) -> None:
    names = join(workers, trainers=3, rollouts=3)
    reports = sync_all(workers, names, 1)
    assert reports["trainer 2"]["nbytes"] == 0
    assert reports["trainer 2"]["buckets"] == 0
    handles = workers.run({name: (jobs.start_sync, 2) for name in names})
    assert {answer.get()["version"] for answer in handles.values()} == {2}
    sync_all(workers, names, 2)


def test_replicas_share_the_sending(workers: Workers) -> None:
    names = join(workers, bucket_bytes=64)
    reports = sync_all(workers, names, 1)
    halves = (4 * 4 * 8 * 16 * 2 + 4 * 2 * 16 * 16 * 2 + 12 * 16 * 2) // 2
    replicas = 16 * 2 + 4 * 16 * 4 + 4
    assert reports["trainer 0"]["nbytes"] == halves + 16 * 16 * 2
    # trainer 1 holds less, so it sends all replicas; its two rows of padding are wanted by nobody and stay at home
    assert reports["trainer 1"]["nbytes"] == halves + 16 * 8 + replicas - 2 * 16 * 2


def test_verify_finds_replicas_that_differ(workers: Workers) -> None:
    names = join(workers)
    assert all(report["verified"] for report in sync_all(workers, names, 1, verify=True).values())
    workers.run({"trainer 1": (jobs.change_replica, "layer.norm")})["trainer 1"].get()
    answers = workers.run({name: (jobs.sync_as_it_is, 2, {"verify": True}) for name in names})
    for answer in answers.values():
        assert answer.message.startswith("'layer.norm' is a replica on trainer 0 and trainer 1, but their bytes differ")
    assert workers.run({"rollout 0": (jobs.told_state,)})["rollout 0"].get().version == 1
    sync_all(workers, names, 3, verify=True)


def test_verify_finds_bytes_that_changed(workers: Workers) -> None:
    names = join(workers)
    workers.run({"rollout 1": (jobs.corrupt_what_arrives,)})["rollout 1"].get()
    answers = workers.run({name: (jobs.sync_as_it_is, 1, {"verify": True}) for name in names})
    assert all("what rollout 1 received is not what trainer" in answer.message for answer in answers.values())
    state = workers.run({"rollout 1": (jobs.told_state,)})["rollout 1"].get()
    assert not state.whole
    assert state.torn


def test_many_syncs_leave_nothing_behind(workers: Workers) -> None:
    names = join(workers, bucket_bytes=1024)
    answers = workers.run({name: (jobs.many_syncs, 30) for name in names})
    assert {name: answer.get() for name, answer in answers.items()} == dict.fromkeys(names, (0, 0))

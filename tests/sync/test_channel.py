# SPDX-License-Identifier: Apache-2.0
"""Channels: their operations, their roles, and what they refuse."""

from __future__ import annotations

import time

import jobs
import pytest
from workers import Workers, free_address

from layout_kernels import LayoutError
from layout_kernels.sync import Channel, SyncError, connect


def test_operations(workers: Workers) -> None:
    address = free_address()
    ranks = {"trainer 0": ("trainer", 0), "trainer 1": ("trainer", 1), "rollout 0": ("rollout", 0)}
    answers = workers.run({name: (jobs.use_channel, address, *who) for name, who in ranks.items()})
    told = [answers[name].get() for name in ranks]
    assert all(answer["names"] == ["trainer 0", "trainer 1", "rollout 0"] for answer in told)
    assert all(answer["everyone"] == {2} for answer in told)
    assert [answer["pair"] for answer in told] == [{0}, {1}, {0}]
    assert [answer["token"] for answer in told] == [0, 0, 2]
    assert all(answer["heard"] == [1, 9 << 20, 1] for answer in told)
    assert not any(answer["initialised"] for answer in told)  # the default group is not touched


@pytest.mark.parametrize("communicator", [False, True])
def test_channels_over_what_exists(workers: Workers, communicator: bool) -> None:
    names = ["trainer 0", "rollout 0", "rollout 1"]
    address = free_address()
    for answer in workers.run({n: (jobs.default_group, address, r, 3) for r, n in enumerate(names)}).values():
        answer.get()
    joins = {name: (jobs.join_wrapped, *name.split()[:1], int(name[-1]), communicator) for name in names}
    for step in (joins, dict.fromkeys(names, (jobs.sync_wrapped,)), dict.fromkeys(names, (jobs.leave_default_group,))):
        for answer in workers.run(step).values():
            answer.get()


def test_arguments_are_refused() -> None:
    def refused(match: str, address: str = "127.0.0.1:1", role: str = "trainer", rank: int = 0, world: int = 1) -> None:
        with pytest.raises(LayoutError, match=match):
            connect(address, role=role, rank=rank, world=world, time_limit=1)

    refused("'host:port' was wanted", address="127.0.0.1")
    refused("'host:port' was wanted", address="127.0.0.1:99999")
    refused("one of .*nearest is 'trainer'", role="trainers")
    refused("a rank from 0 to 0", rank=1)
    with pytest.raises(LayoutError, match=r"backend 'glo' is not known.*nearest is 'gloo'"):
        connect("127.0.0.1:1", role="trainer", rank=0, world=1, backend="glo")
    with pytest.raises(LayoutError, match="no default group"):
        Channel.of()
    with pytest.raises(LayoutError, match="has no rank, world_size"):
        Channel.of(object())


def test_nobody_hosts_the_store() -> None:
    started = time.monotonic()
    wanted = r"rollout 0: no session at .* within the time limit of 1 s.*Trainer 0 hosts"
    with pytest.raises(SyncError, match=wanted) as info:
        connect(free_address(), role="rollout", rank=0, world=1, time_limit=1)
    assert time.monotonic() - started < 2
    assert info.value.ranks == ("trainer 0",)


def test_worlds_that_disagree(workers: Workers) -> None:
    address = free_address()
    calls = {f"trainer {rank}": (jobs.join, address, "trainer", rank, 2 + rank, 10.0, {}) for rank in range(2)}
    for answer in workers.run(calls).values():
        assert answer.kind == "LayoutError"
        assert "trainers, another trainer said" in answer.message
        assert answer.seconds < 5


def test_two_processes_with_one_rank(workers: Workers) -> None:
    address = free_address()
    calls = {"trainer 0": (jobs.join, address, "trainer", 0, 1, 3.0, {})}
    calls |= {name: (jobs.join, address, "rollout", 0, 2, 3.0, {}) for name in ("rollout 0", "rollout 1")}
    for answer in workers.run(calls).values():
        assert answer.kind == "SyncError"
        assert answer.seconds < 4

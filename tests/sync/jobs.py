# SPDX-License-Identifier: Apache-2.0
"""What the tests' processes do; each keeps its sender or receiver in the worker's state."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import torch
import toy

import layout_kernels as lk
from layout_kernels.sync import Channel, WeightReceiver, WeightSender, connect

State = dict[str, Any]


def join(state: State, address: str, role: str, rank: int, world: int, limit: float, options: dict[str, Any]) -> str:
    """Connects and makes a sender or receiver of the toy model; ranks above 1 hold nothing."""
    state["channel"] = connect(address, role=role, rank=rank, world=world, time_limit=limit)
    if role == "trainer":
        specs, tensors = toy.trainer_specs(rank % 2), toy.trainer_tensors(rank % 2, 1)
    else:
        specs, tensors = toy.rollout_specs(rank % 2), toy.rollout_tensors(rank % 2)
    if rank > 1:
        specs, tensors = {}, {}
    make = WeightSender if role == "trainer" else WeightReceiver
    state["end"] = make(specs, tensors, state["channel"], **options)
    state["tensors"], state["rank"], state["role"] = tensors, rank, role
    return state["channel"].name(state["channel"].rank)


def sync(state: State, version: int, options: dict[str, Any] | None = None) -> dict[str, Any]:
    """One sync of step ``version``: the report; what a rollout holds is compared with the listing."""
    if state["role"] == "trainer" and state["tensors"]:
        for name, tensor in toy.trainer_tensors(state["rank"], version).items():
            state["tensors"][name].copy_(tensor)
    pointers = [tensor.data_ptr() for tensor in state["tensors"].values()]
    report = state["end"].sync(version, **(options or {}))
    assert pointers == [tensor.data_ptr() for tensor in state["tensors"].values()]
    if state["role"] == "rollout" and state["tensors"]:
        wrong = toy.differences(state["tensors"], toy.expected(state["rank"], version))
        assert not wrong, f"wrong bytes in {wrong}"
        assert state["end"].state().version == version
    return dict(report.to_json(), text=str(report))


def start_sync(state: State, version: int) -> dict[str, Any]:
    handle = state["end"].start(version)
    assert 0 <= handle.progress <= 1
    report = handle.wait(30)
    assert handle.done
    assert handle.progress == 1
    return dict(report.to_json())


def told_state(state: State) -> Any:
    return state["end"].state()


def replace_spec(state: State, name: str, fields: dict[str, Any]) -> None:
    end = state["end"]
    end.specs[name] = end.specs[name].replace(**fields)


def replace_tensor(state: State, name: str, dtype: torch.dtype) -> None:
    end = state["end"]
    end.tensors[name] = end.tensors[name].to(dtype)


def ready(state: State) -> dict[str, str]:
    return lk.backends()


def sync_as_it_is(state: State, version: int, options: dict[str, Any]) -> None:
    state["end"].sync(version, **options)


def change_replica(state: State, name: str) -> None:
    state["end"].tensors[name].view(-1).view(torch.uint8)[0] ^= 1


def corrupt_what_arrives(state: State) -> None:
    """A wire that turns a bit of the first bucket."""
    end = state["end"]
    scatter, done = end._scatter, []

    def scatter_turned(number: int, bound: Any, report: Any) -> None:
        if not done:
            end._steps[number].landing[0] ^= 1
            done.append(number)
        scatter(number, bound, report)

    end._scatter = scatter_turned


def kill_me_at_bucket(state: State, number: int) -> None:
    """This process dies, as by ``kill -9``, when it has come so far in the next sync."""
    channel = state["channel"]
    note = channel.note

    def fatal_note(text: str) -> None:
        note(text)
        if f"bucket {number} of" in text:
            os.kill(os.getpid(), signal.SIGKILL)

    channel.note = fatal_note


def stop_me_at_bucket(state: State, number: int) -> None:
    """This process stops, as by ``kill -STOP``, when it has come so far in the next sync."""
    channel = state["channel"]
    note = channel.note

    def fatal_note(text: str) -> None:
        note(text)
        if f"bucket {number} of" in text:
            os.kill(os.getpid(), signal.SIGSTOP)

    channel.note = fatal_note


def fail_at_bucket(state: State, number: int) -> None:
    """The next sync raises here when it has come so far."""
    channel = state["channel"]

    def fatal_note(text: str) -> None:
        if f"bucket {number} of" in text:
            raise RuntimeError("the disk is on fire")

    channel.note = fatal_note


def drop(state: State, name: str) -> None:
    del state["end"].specs[name], state["end"].tensors[name]


def move_tensor(state: State, name: str) -> None:
    """As an engine or optimizer does that gives a parameter other storage."""
    state["tensors"][name].data = state["tensors"][name].clone()


def abort_at_bucket(state: State, number: int) -> None:
    end, channel = state["end"], state["channel"]

    def fatal_note(text: str) -> None:
        if f"bucket {number} of" in text:
            end.abort("enough of this")

    channel.note = fatal_note


def default_group(state: State, address: str, rank: int, world: int) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"tcp://{address}", rank=rank, world_size=world)


def leave_default_group(state: State) -> None:
    torch.distributed.destroy_process_group()


class EngineCommunicator:
    """As an engine's: operations on all ranks, named by ``src`` and ``dst``."""

    def __init__(self) -> None:
        self.rank, self.world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()

    def broadcast(self, tensor: torch.Tensor, src: int) -> None:
        torch.distributed.broadcast(tensor, src)

    def send(self, tensor: torch.Tensor, dst: int) -> None:
        torch.distributed.send(tensor, dst)

    def recv(self, tensor: torch.Tensor, src: int) -> None:
        torch.distributed.recv(tensor, src)


def join_wrapped(state: State, role: str, rank: int, communicator: bool) -> None:
    """A channel over the default group; one trainer holds the halves of both of the toy model's."""
    state["channel"] = Channel.of(EngineCommunicator() if communicator else None, time_limit=20)
    if role == "trainer":
        specs, tensors = {}, {}
        for half in range(2):
            specs |= {f"{half}.{name}": spec for name, spec in toy.trainer_specs(half).items()}
            tensors |= {f"{half}.{name}": tensor for name, tensor in toy.trainer_tensors(half, 1).items()}
        for name in [name for name in specs if name.startswith("1.") and specs[name] in specs_of(specs, "0.")]:
            del specs[name], tensors[name]
        state["end"] = WeightSender(specs, tensors, state["channel"], bucket_bytes=1024)
    else:
        specs, tensors = toy.rollout_specs(rank), toy.rollout_tensors(rank)
        state["end"] = WeightReceiver(specs, tensors, state["channel"])
    state["tensors"], state["rank"], state["role"] = tensors, rank, role


def specs_of(specs: dict[str, Any], prefix: str) -> list[Any]:
    return [spec for name, spec in specs.items() if name.startswith(prefix)]


def sync_wrapped(state: State) -> None:
    state["end"].sync(1, verify=True)
    if state["role"] == "rollout":
        assert not toy.differences(state["tensors"], toy.expected(state["rank"], 1))


def use_channel(state: State, address: str, role: str, rank: int) -> dict[str, Any]:
    """Every operation of a channel among two trainers and one rollout."""
    channel = connect(address, role=role, rank=rank, world=2 if role == "trainer" else 1, time_limit=20)
    names = [channel.name(other) for other in range(channel.size)]
    everyone, pair = torch.full((1000,), channel.rank), torch.full((10,), channel.rank)
    channel.broadcast(everyone, 2)
    if channel.rank != 1:
        channel.broadcast(pair, 0, (0, 2))
    token = torch.tensor([channel.rank])
    if channel.rank == 0:
        channel.send(token, 1)
    elif channel.rank == 1:
        channel.recv(token, 0)
    channel.barrier()
    long = bytes([channel.rank]) * (9 << 20)
    heard = channel.exchange(long) if channel.rank == 1 else channel.exchange(b"%d" % channel.rank)
    channel.close()
    return {
        "names": names,
        "everyone": set(everyone.tolist()),
        "pair": set(pair.tolist()),
        "token": int(token),
        "heard": [len(blob) for blob in heard],
        "initialised": torch.distributed.is_initialized(),
    }


def many_syncs(state: State, count: int) -> tuple[int, int]:
    """The growth of open files and threads over so many syncs."""
    end = state["end"]
    end.sync(1)
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for version in range(2, count + 2):
        end.sync(version)
    return len(os.listdir("/proc/self/fd")) - files, threading.active_count() - threads


def check_state(state: State, before: int, after: int) -> None:
    """After a sync from one version to another broke off: what the receiver says of each tensor is so."""
    told, rank, tensors = state["end"].state(), state["rank"], state["tensors"]
    old, new = toy.expected(rank, before), toy.expected(rank, after)
    if told.whole:
        assert not toy.differences(tensors, new if told.version == after else old)
        return
    assert told.attempted == after
    assert sorted(told.new + told.old + told.torn) == sorted(tensors)
    assert not toy.differences(tensors, {name: new[name] for name in told.new})
    assert not toy.differences(tensors, {name: old[name] for name in told.old})


def join_and_sync(
    state: State, address: str, role: str, rank: int, world: int, limit: float, options: dict[str, Any], version: int
) -> dict[str, Any]:
    join(state, address, role, rank, world, limit, options)
    return sync(state, version)

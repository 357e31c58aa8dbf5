# SPDX-License-Identifier: Apache-2.0
"""Buckets are pure: every element once, inside its bucket, aligned, and shared evenly."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from layout_kernels import LayoutError, Spec
from layout_kernels.sync import buckets as planner
from layout_kernels.sync.buckets import ALIGNMENT, Bucket
from layout_kernels.sync.holdings import Holding

DTYPES = (torch.bfloat16, torch.float32, torch.uint8, torch.complex128)
Held = dict[int, dict[str, Holding]]


def tensor(name: str, elements: int, dtype: torch.dtype = torch.bfloat16, rank: int = 0) -> Holding:
    """Its mesh has a tp that the layout does not use, as those of replicas have."""
    return Holding(Spec("n", of=name, dims={"n": elements}, mesh={"tp": (4, rank)}), (elements,), dtype)


def plan(held: Held, bucket_bytes: int) -> list[Bucket]:
    return planner.pack(planner.cut(held, bucket_bytes), bucket_bytes)


def check(held: Held, found: list[Bucket], bucket_bytes: int) -> None:
    """Every element of every (name, Spec) once; entries in order, aligned, apart, within their bucket's bytes."""
    covered: dict[tuple[str, Spec], list[tuple[int, int]]] = {}
    for bucket in found:
        assert 0 < bucket.nbytes <= bucket_bytes
        end = 0
        for entry in bucket.entries:
            holding = held[bucket.owner][entry.name]
            assert entry.rank == bucket.owner
            assert entry.offset % ALIGNMENT == 0
            assert entry.offset >= end
            assert entry.nbytes == (entry.stop - entry.start) * holding.dtype.itemsize > 0
            end = entry.offset + entry.nbytes
            covered.setdefault((entry.name, holding.spec), []).append((entry.start, entry.stop))
        assert end == bucket.nbytes
    for key, ranks in planner.replicas(held).items():
        ends = [0]
        for start, stop in sorted(covered.pop(key, [])):
            assert start == ends[-1]
            ends.append(stop)
        assert ends[-1] == held[ranks[0]][key[0]].elements
    assert not covered


@pytest.mark.parametrize("cuts", list(itertools.product([False, True], repeat=5)))
def test_all_ways_to_cut_six_tensors_into_buckets(cuts: tuple[bool, ...]) -> None:
    """Sizes are chosen so that a tensor either fits beside the one before it or does not."""
    limit = 64 * 64
    sizes, room = [64], limit - 64
    for cut in cuts:
        size = min(limit // 2, room + 64) if cut else 64
        if cut and size <= room:
            size = limit // 2
            sizes[-1] += room - size + 64 if sizes[-1] + room - size + 64 <= limit // 2 else 0
        sizes.append(size)
        room = limit - size if size > room else room - size
    held = {0: {f"t{number}": tensor(f"t{number}", size // 2) for number, size in enumerate(sizes)}}
    check(held, plan(held, limit), limit)


@pytest.mark.parametrize("seed", range(60))
def test_random_holdings(seed: int) -> None:
    random_numbers = random.Random(seed)
    held: Held = {rank: {} for rank in range(random_numbers.randint(1, 4))}
    for number in range(random_numbers.randint(0, 12)):
        elements = random_numbers.choice([0, 1, 3, 32, 100, 1000])
        dtype = random_numbers.choice(DTYPES)
        for rank in random_numbers.sample(sorted(held), random_numbers.randint(1, len(held))):
            held[rank][f"t{number}"] = tensor(f"t{number}", elements, dtype, rank)
    limit = random_numbers.choice([64, 128, 1024, 1 << 20])
    found = plan(held, limit)
    check(held, found, limit)
    again = plan({rank: dict(tensors) for rank, tensors in held.items()}, limit)
    assert planner.digest(found) == planner.digest(again)


def test_replicas_are_shared_evenly_and_shards_are_not_replicas() -> None:
    held: Held = {rank: {f"norm{n}": tensor(f"norm{n}", 500, rank=rank) for n in range(40)} for rank in range(4)}
    for rank in range(4):
        shard = Spec("n/tp", of="big", dims={"n": 4000}, mesh={"tp": (4, rank)})
        held[rank]["big"] = Holding(shard, (1000,), torch.bfloat16)
    sent = dict.fromkeys(held, 0)
    for bucket in plan(held, 4096):
        sent[bucket.owner] += sum(entry.nbytes for entry in bucket.entries)
    assert set(sent.values()) == {2000 + 10 * 1000}


def test_one_large_replica_is_shared_by_chunks() -> None:
    held: Held = {rank: {"embed": tensor("embed", 4096)} for rank in range(2)}
    found = plan(held, 1024)
    assert [bucket.owner for bucket in found] == [0, 1] * 4


def test_owners_take_turns_in_proportion() -> None:
    held: Held = {0: {"a": tensor("a", 3 * 512)}, 1: {"b": tensor("b", 6 * 512)}}
    owners = [bucket.owner for bucket in plan(held, 1024)]
    assert owners == [0, 1, 1, 0, 1, 1, 0, 1, 1]


def test_a_tensor_of_more_than_half_a_bucket_is_alone() -> None:
    held: Held = {0: {"small": tensor("small", 10), "large": tensor("large", 300), "other": tensor("other", 10)}}
    assert [[entry.name for entry in bucket.entries] for bucket in plan(held, 1024)] == [["large"], ["small", "other"]]


def test_sizes() -> None:
    held: Held = {0: {"a": tensor("a", 1 << 30)}}
    assert planner.choose_bytes(None, held) == (2 << 30) // 16
    assert planner.choose_bytes(None, {0: {"a": tensor("a", 1 << 40)}}) == 256 << 20
    assert planner.choose_bytes(None, {}) == planner.SMALLEST_DEFAULT
    assert planner.choose_bytes(100, held) == 64
    with pytest.raises(LayoutError, match="bucket_bytes is 63; at least 64"):
        planner.choose_bytes(63, held)


def test_replicas_of_two_dtypes_are_refused() -> None:
    held: Held = {0: {"a": tensor("a", 4)}, 1: {"a": tensor("a", 4, torch.float32)}}
    with pytest.raises(LayoutError, match=r"'a' is torch.bfloat16 on trainer rank 0 and torch.float32 on 1"):
        planner.cut(held, 64)

# SPDX-License-Identifier: Apache-2.0
"""Who sends what, in which order: pure functions from what the trainers hold to a list of buckets.

Every rank derives the same list from the same holdings, so nothing but weights travels during a sync.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import LayoutError
from ..spec import Spec
from .holdings import Holding

ALIGNMENT = 64  # bytes: every entry starts on a cache line, so that its elements are aligned whatever came before
DEFAULT_BYTES = 256 << 20
SMALLEST_DEFAULT = 4 << 20
STEPS = 16  # a model smaller than that many default buckets is still cut into about so many, so that stages overlap


@dataclass(frozen=True, order=True)
class Entry:
    """Elements ``[start, stop)``, in index order, of tensor ``name`` of rank ``rank``."""

    rank: int
    name: str
    start: int
    stop: int
    nbytes: int
    offset: int = 0  # in the bucket

    @property
    def key(self) -> tuple[int, str, int]:
        """What plans call it."""
        return self.rank, self.name, self.start


@dataclass(frozen=True)
class Bucket:
    """What one rank sends in one go: entries at ascending, aligned offsets."""

    owner: int
    entries: tuple[Entry, ...]
    nbytes: int


def choose_bytes(asked: int | None, held: Mapping[int, Mapping[str, Holding]]) -> int:
    """The bound on a bucket: what was asked for, else 256 MiB, less for a small model."""
    if asked is None:
        total = sum(holding.nbytes for holdings in held.values() for holding in holdings.values())
        asked = min(DEFAULT_BYTES, max(SMALLEST_DEFAULT, total // STEPS))
    if asked < ALIGNMENT:
        raise LayoutError(f"bucket_bytes is {asked}; at least {ALIGNMENT} were wanted")
    return asked - asked % ALIGNMENT


def cut(held: Mapping[int, Mapping[str, Holding]], bucket_bytes: int) -> list[Entry]:
    """Every element that some trainer holds, once: in entries that fit a bucket, each with the rank that sends it.

    Tensors of one name with equal Specs on several ranks are replicas, which share the sending evenly by bytes.

    Parameters
    ----------
    held : mapping of rank to mapping of name to Holding
        The trainers' holdings.
    bucket_bytes : int
        A multiple of 64.
    """
    load = dict.fromkeys(held, 0)
    single: list[Entry] = []
    shared: list[tuple[Entry, list[int]]] = []
    for (name, _), ranks in replicas(held).items():
        for entry in _chunks(ranks[0], name, held[ranks[0]][name], bucket_bytes):
            if len(ranks) == 1:
                load[entry.rank] += entry.nbytes
                single.append(entry)
            else:
                shared.append((entry, ranks))
    return _ordered(held, single + list(_share(shared, load)))


def replicas(held: Mapping[int, Mapping[str, Holding]]) -> dict[tuple[str, Spec], list[int]]:
    """The ranks that hold each (name, Spec).

    Raises
    ------
    LayoutError
        Where replicas differ in dtype.
    """
    found: dict[tuple[str, Spec], list[int]] = {}
    for rank, tensors in held.items():
        for name, holding in tensors.items():
            ranks = found.setdefault((name, holding.spec), [])
            ranks.append(rank)
            first = held[ranks[0]][name]
            if first.dtype != holding.dtype:
                raise LayoutError(
                    f"{name!r} is {first.dtype} on trainer rank {ranks[0]} and {holding.dtype} on {rank}, with one Spec"
                )
    return found


def _chunks(rank: int, name: str, holding: Holding, bucket_bytes: int) -> Iterator[Entry]:
    itemsize = holding.dtype.itemsize
    step = bucket_bytes // itemsize
    for start in range(0, holding.elements, step):
        stop = min(start + step, holding.elements)
        yield Entry(rank, name, start, stop, (stop - start) * itemsize)


def _share(shared: Sequence[tuple[Entry, list[int]]], load: dict[int, int]) -> Iterator[Entry]:
    """Largest first, each to the holder with the least to send so far."""
    for entry, ranks in sorted(shared, key=lambda item: (-item[0].nbytes, item[0])):
        owner = min(ranks, key=lambda rank: (load[rank], rank))
        load[owner] += entry.nbytes
        yield replace(entry, rank=owner)


def _ordered(held: Mapping[int, Mapping[str, Holding]], entries: Iterable[Entry]) -> list[Entry]:
    """In the order in which each rank named its tensors."""
    place = {(rank, name): number for rank, tensors in held.items() for number, name in enumerate(tensors)}
    return sorted(entries, key=lambda entry: (entry.rank, place[entry.rank, entry.name], entry.start))


def pack(entries: Sequence[Entry], bucket_bytes: int) -> list[Bucket]:
    """Entries into buckets of at most ``bucket_bytes``, the owners' buckets interleaved in proportion.

    An entry of more than half a bucket gets one to itself: where it is contiguous, it is sent from where it lies.
    """
    owners: dict[int, list[Bucket]] = {}
    for rank in sorted({entry.rank for entry in entries}):
        owners[rank] = list(_fill([entry for entry in entries if entry.rank == rank], bucket_bytes))
    return list(_interleave(owners))


def _fill(entries: Sequence[Entry], bucket_bytes: int) -> Iterator[Bucket]:
    filled: list[Entry] = []
    end = 0
    for entry in entries:
        if 2 * entry.nbytes > bucket_bytes:
            yield Bucket(entry.rank, (replace(entry, offset=0),), entry.nbytes)
            continue
        offset = -(-end // ALIGNMENT) * ALIGNMENT
        if offset + entry.nbytes > bucket_bytes:
            yield Bucket(entry.rank, tuple(filled), end)
            filled, offset = [], 0
        filled.append(replace(entry, offset=offset))
        end = offset + entry.nbytes
    if filled:
        yield Bucket(filled[0].rank, tuple(filled), end)


def _interleave(owners: Mapping[int, Sequence[Bucket]]) -> Iterator[Bucket]:
    """The owner that has sent the smallest part of its own goes next, so that all end together."""
    totals = {rank: sum(bucket.nbytes for bucket in buckets) for rank, buckets in owners.items()}
    turns = [(0.0, rank, 0, 0) for rank in owners]
    heapq.heapify(turns)
    while turns:
        _, rank, number, sent = heapq.heappop(turns)
        bucket = owners[rank][number]
        yield bucket
        sent += bucket.nbytes
        if number + 1 < len(owners[rank]):
            heapq.heappush(turns, (sent / totals[rank], rank, number + 1, sent))


def digest(buckets: Sequence[Bucket], holdings: Iterable[bytes] = ()) -> str:
    """A fingerprint of who sends what in which order, and of the holdings that this was derived from."""
    known = [hashlib.sha256(blob).hexdigest() for blob in holdings]
    rows = [(bucket.owner, bucket.nbytes, [_row(entry) for entry in bucket.entries]) for bucket in buckets]
    return hashlib.sha256(json.dumps([known, rows]).encode()).hexdigest()


def _row(entry: Entry) -> tuple[int | str, ...]:
    return entry.rank, entry.name, entry.start, entry.stop, entry.nbytes, entry.offset

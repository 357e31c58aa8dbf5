# SPDX-License-Identifier: Apache-2.0
"""Before the first byte moves: every rank says what it holds, all derive one plan, and compare what they derived.

Three rounds of small messages. First the holdings; then, since only a receiver knows which of the senders' entries it
reads, the entries that it does not want; last, with the version of each sync, the digest of the resulting buckets. A
rank that refuses says so in the round's message, so that all refuse together and at once, and the channel stays whole.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from ..errors import LayoutError
from ..plan import CopyPlan, compile
from ..spec import Spec
from . import buckets as planner
from .buckets import Bucket, Entry
from .channel import Channel
from .holdings import Holding, Holdings, from_bytes, pack_message, parse_message, to_bytes
from .wire import wire_spec

Result = TypeVar("Result")
Strides = Mapping[str, tuple[int, ...]]
Held = Mapping[int, Mapping[str, Holding]]


@dataclass(frozen=True)
class Agreement:
    """What all ranks agreed on.

    Attributes
    ----------
    trainers : mapping of rank to mapping of name to Holding
    rollouts : tuple of int
        The ranks that receive.
    buckets : list of Bucket
    plan : CopyPlan or None
        From the entries on the wire to this rank's targets; None on a trainer.
    digest : str
        Of what every rank holds, and of the buckets.
    """

    trainers: Held
    rollouts: tuple[int, ...]
    buckets: list[Bucket]
    plan: CopyPlan | None
    digest: str

    def holding(self, entry: Entry) -> Holding:
        return self.trainers[entry.rank][entry.name]

    @property
    def nbytes(self) -> int:
        return sum(bucket.nbytes for bucket in self.buckets)


def agree(
    channel: Channel,
    mine: Callable[[], Holdings],
    strides: Strides,
    stage: Callable[[str], AbstractContextManager[None]],
) -> Agreement:
    """Takes part in the first two rounds.

    Parameters
    ----------
    channel : Channel
    mine : callable
        What this rank holds; a LayoutError that it raises refuses the agreement on all ranks.
    strides : mapping of str to tuple of int
        Of those of this rank's targets that are not contiguous.
    stage : callable
        A context that takes the time of a stage.

    Raises
    ------
    LayoutError
        Where any rank refuses: the message names it and says why. Nothing was written.
    """
    said, refusal = _attempt(mine)
    spoken = said or Holdings("trainer", error=str(refusal))
    heard = channel.exchange(to_bytes(spoken), "agreeing: what every rank holds")
    everyone = _hear(channel, heard)
    options = _common_options(channel, everyone)
    trainers = {rank: held.tensors for rank, held in enumerate(everyone) if held.role == "trainer"}
    rollouts = {rank: held.tensors for rank, held in enumerate(everyone) if held.role == "rollout"}
    with stage("plan"):
        drafted, refusal = _attempt(lambda: _draft(channel.rank, trainers, rollouts, options, strides))
    draft = drafted or _Draft(0, [], None, [])
    message = {"error": str(refusal or ""), "unread": draft.unread, "entries": len(draft.entries)}
    answers = [parse_message(blob) for blob in channel.exchange(pack_message(message), "agreeing: who wants what")]
    refuse_errors(channel, answers)
    _refuse_difference(channel, "entries", answers)
    wanted = _wanted(draft.entries, [answers[rank] for rank in rollouts])
    packed = planner.pack(wanted, draft.bucket_bytes)
    return Agreement(trainers, tuple(rollouts), packed, draft.plan, planner.digest(packed, heard))


def say_ready(channel: Channel, agreement: Agreement, prepare: Callable[[], None]) -> None:
    """Takes part in the third round: everything is bound on all ranks, and only then do they connect with each other.

    Raises
    ------
    LayoutError
        Where any rank cannot bind its tensors, or derived other buckets.
    """
    _, refusal = _attempt(prepare)
    message = {"error": str(refusal or ""), "digest": agreement.digest}
    answers = [parse_message(blob) for blob in channel.exchange(pack_message(message), "agreeing: ready")]
    refuse_errors(channel, answers)
    _refuse_difference(channel, "digest", answers)
    for owner in sorted({bucket.owner for bucket in agreement.buckets}):
        if channel.rank in (owner, *agreement.rollouts):
            channel.group((owner, *agreement.rollouts))


def _refuse_difference(channel: Channel, word: str, answers: Sequence[Mapping[str, Any]]) -> None:
    for rank, answer in enumerate(answers):
        if answer.get(word) != answers[0].get(word):
            raise LayoutError(
                f"{channel.name(rank)} derived a plan with {word} {answer.get(word)}, {channel.name(0)} one with "
                f"{answers[0].get(word)}: do they run one version of the library? (nothing was written)"
            )


def refuse_errors(channel: Channel, answers: Sequence[Mapping[str, Any]], end: str = " (nothing was written)") -> None:
    """Raises where any rank's message holds an error."""
    said = [(channel.name(rank), answer.get("error")) for rank, answer in enumerate(answers)]
    errors = [f"{name}: {error}" for name, error in said if error]
    if errors:
        raise LayoutError("; ".join(dict.fromkeys(errors)) + end)


@dataclass(frozen=True)
class _Draft:
    """What one rank derives from the holdings: the entries, and which of them it does not read."""

    bucket_bytes: int
    entries: list[Entry]
    plan: CopyPlan | None
    unread: list[int]


def _attempt(work: Callable[[], Result]) -> tuple[Result | None, LayoutError | None]:
    try:
        return work(), None
    except LayoutError as error:
        return None, error


def _hear(channel: Channel, blobs: Sequence[bytes]) -> list[Holdings]:
    everyone = []
    for rank, blob in enumerate(blobs):
        try:
            everyone.append(from_bytes(blob))
        except LayoutError as error:
            raise LayoutError(f"{channel.name(rank)}: {error} (nothing was written)") from error
    refuse_errors(channel, [{"error": held.error} for held in everyone])
    return everyone


def _common_options(channel: Channel, everyone: Sequence[Holdings]) -> dict[str, Any]:
    """The options of all ranks; None means no opinion."""
    common: dict[str, tuple[str, Any]] = {}
    for rank, held in enumerate(everyone):
        for option, value in held.options.items():
            if value is None:
                continue
            first, known = common.setdefault(option, (channel.name(rank), value))
            if known != value:
                raise LayoutError(
                    f"{channel.name(rank)} says {option}={value!r}, {first} says {known!r} (nothing was written)"
                )
    return {option: value for option, (_, value) in common.items()}


def _draft(
    rank: int,
    trainers: Held,
    rollouts: Held,
    options: Mapping[str, Any],
    strides: Strides,
) -> _Draft:
    bucket_bytes = planner.choose_bytes(options.get("bucket_bytes"), trainers)
    entries = planner.cut(trainers, bucket_bytes)
    wire: dict[Hashable, Spec] = {entry.key: wire_spec(trainers[entry.rank][entry.name], entry) for entry in entries}
    if rank in rollouts:
        targets: dict[Hashable, Spec] = {name: held.spec for name, held in rollouts[rank].items()}
        plan = CopyPlan.derive(wire, targets, unused="allow", replicas="refuse", strides=({}, dict(strides)))
        _check_dtypes(plan, trainers, rollouts[rank])
        read = keys_read(plan)
        return _Draft(bucket_bytes, entries, plan, [n for n, entry in enumerate(entries) if entry.key not in read])
    if rank == min(trainers) and options.get("unused", "refuse") == "refuse":
        _check_union(trainers, rollouts)
    return _Draft(bucket_bytes, entries, None, [])


def keys_read(plan: CopyPlan) -> set[Hashable]:
    """The sources that a plan reads at all."""
    return {plan.source_keys[number] for number in set(plan.table.source.tolist()) if number >= 0}


def _check_union(trainers: Held, rollouts: Held) -> None:
    """Every element that a trainer holds is wanted by some receiver; equal targets of several count once."""
    distinct = planner.replicas(trainers).items()
    sources: dict[Hashable, Spec] = {(ranks[0], name): spec for (name, spec), ranks in distinct}
    targets: dict[Spec, Hashable] = {}
    for rank, tensors in rollouts.items():
        for name, held in tensors.items():
            targets.setdefault(held.spec, (rank, name))
    compile(sources, {key: spec for spec, key in targets.items()})


def _check_dtypes(plan: CopyPlan, trainers: Held, targets: Mapping[str, Holding]) -> None:
    """A target takes its source's dtype, or its Spec declares the cast."""
    pairs = {(int(s), int(t)) for s, t in zip(plan.table.source, plan.table.target, strict=True) if s >= 0}
    for source_number, target_number in sorted(pairs):
        rank, name, _ = cast(tuple[int, str, int], plan.source_keys[source_number])
        target = str(plan.target_keys[target_number])
        source, held = trainers[rank][name], targets[target]
        if held.spec.dtype is None and held.dtype != source.dtype:
            raise LayoutError(
                f"target {target!r} is {held.dtype} and its source {name!r} of trainer rank {rank} is {source.dtype}; "
                f"say dtype={held.dtype} in the target's Spec if the cast is meant"
            )


def _wanted(entries: Sequence[Entry], answers: Sequence[Mapping[str, Any]]) -> list[Entry]:
    """The entries that at least one receiver reads."""
    unread = set(range(len(entries)))
    for answer in answers:
        numbers = answer.get("unread")
        unread &= set(numbers) if isinstance(numbers, list) else set()
    return [entry for number, entry in enumerate(entries) if number not in unread]

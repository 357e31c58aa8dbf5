# SPDX-License-Identifier: Apache-2.0
"""What a sync would move, without moving it: the same plan and the same buckets, made of Specs alone."""

from __future__ import annotations

from typing import Any

import torch

from ..plan import CopyPlan, compile
from ..spec import Spec
from ..sync.buckets import choose_bytes, cut, pack
from ..sync.holdings import Holding
from .settings import Settings


def outlook(settings: Settings, bucket_bytes: int | None) -> dict[str, Any]:
    """Who would hold, send and receive how much.

    Parameters
    ----------
    settings : Settings
        The model and both meshes.
    bucket_bytes : int, optional
        The bound on a bucket; by default as a sync chooses it.

    Raises
    ------
    LayoutError
        Where the two sides do not fit: what a sync would refuse.
    """
    held = {rank: _holdings(settings.specs("trainer", rank)) for rank in range(settings.trainers)}
    sources = {(rank, name): holding.spec for rank, tensors in held.items() for name, holding in tensors.items()}
    buckets = pack(entries := cut(held, size := choose_bytes(bucket_bytes, held)), size)
    sent = dict.fromkeys(held, 0)
    for bucket in buckets:
        sent[bucket.owner] += bucket.nbytes
    whole = compile(sources, _targets(settings), replicas="first")
    return {
        "title": settings.title,
        "tensors": {"trainers": len(sources), "rollouts": len(whole.targets)},
        "blocks": len(whole.table),
        "buckets": {"count": len(buckets), "bytes": size, "entries": len(entries)},
        "wire_bytes": sum(sent.values()),
        "trainers": [_trainer(rank, held[rank], sent[rank], buckets) for rank in held],
        "rollouts": [_rollout(settings, rank, sources) for rank in range(settings.rollouts)],
    }


def rollout_plan(settings: Settings, rank: int, sources: dict[Any, Spec] | None = None) -> CopyPlan:
    """The copy that fills one rollout out of all trainers."""
    wire = {
        key: spec.replace(dtype=spec.dtype or torch.bfloat16) for key, spec in (sources or _sources(settings)).items()
    }
    return compile(wire, settings.specs("rollout", rank), unused="allow", replicas="first")


def _sources(settings: Settings) -> dict[Any, Spec]:
    ranks = range(settings.trainers)
    return {(rank, name): spec for rank in ranks for name, spec in settings.specs("trainer", rank).items()}


def _targets(settings: Settings) -> dict[tuple[int, str], Spec]:
    ranks = range(settings.rollouts)
    return {(rank, name): spec for rank in ranks for name, spec in settings.specs("rollout", rank).items()}


def _holdings(specs: dict[str, Spec]) -> dict[str, Holding]:
    return {name: Holding(spec, spec.shape(), spec.dtype or torch.bfloat16) for name, spec in specs.items()}


def _trainer(rank: int, held: dict[str, Holding], sent: int, buckets: list[Any]) -> dict[str, Any]:
    nbytes = sum(holding.nbytes for holding in held.values())
    mine = sum(bucket.owner == rank for bucket in buckets)
    return {"rank": rank, "tensors": len(held), "held_bytes": nbytes, "sent_bytes": sent, "buckets": mine}


def _rollout(settings: Settings, rank: int, sources: dict[Any, Spec]) -> dict[str, Any]:
    plan = rollout_plan(settings, rank, sources)
    return {"rank": rank, "tensors": len(plan.targets), "written_bytes": plan.nbytes, "blocks": len(plan.table)}

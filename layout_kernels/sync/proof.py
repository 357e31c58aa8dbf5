# SPDX-License-Identifier: Apache-2.0
"""``verify=True``: digests of what was sent and of what arrived, replicas compared, and targets read back.

Digests depend on the position of every byte. They are taken on the host, so that a sync that verifies is slower.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..bound import Bound
from ..errors import LayoutError
from ..plan import CopyPlan
from ..table import Table
from .buckets import Bucket, replicas
from .channel import Channel
from .holdings import Holding

Held = Mapping[int, Mapping[str, Holding]]
Tensors = Mapping[Hashable, torch.Tensor]
Digests = Mapping[str, Any]


def tensor_digest(tensor: torch.Tensor) -> str:
    """Of the bytes of the elements, in index order."""
    flat = tensor.detach().contiguous().view(-1).view(torch.uint8).cpu()
    return hashlib.blake2b(flat.numpy().data, digest_size=16).hexdigest()


def bucket_digests(bucket: Bucket, payload: torch.Tensor) -> list[str]:
    """Of every entry of a bucket; the gaps between entries hold nothing."""
    return [tensor_digest(payload[entry.offset : entry.offset + entry.nbytes]) for entry in bucket.entries]


def replica_digests(rank: int, held: Held, tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Of this rank's tensors that other ranks hold as well."""
    shared = [name for (name, _), ranks in replicas(held).items() if len(ranks) > 1 and rank in ranks]
    return {name: tensor_digest(tensors[name]) for name in shared}


def refuse_unequal_replicas(channel: Channel, held: Held, digests: Mapping[int, Digests]) -> None:
    """Raises where ranks that say to hold the same hold different bytes."""
    for (name, _), ranks in replicas(held).items():
        first = digests[ranks[0]].get(name)
        for rank in ranks[1:]:
            if digests[rank].get(name) != first:
                raise LayoutError(
                    f"{name!r} is a replica on {channel.name(ranks[0])} and {channel.name(rank)}, but their bytes "
                    "differ (nothing was written)"
                )


def refuse_lost_bytes(
    channel: Channel, buckets: Sequence[Bucket], digests: Sequence[Digests], rollouts: Sequence[int]
) -> None:
    """Raises where what arrived is not what was sent."""
    for number, bucket in enumerate(buckets):
        sent = _told(digests[bucket.owner], number, bucket)
        for rank in rollouts:
            arrived = _told(digests[rank], number, bucket)
            for entry, one, other in zip(bucket.entries, sent, arrived, strict=True):
                if one is None or one != other:
                    raise LayoutError(
                        f"{entry.name!r}, elements {entry.start} to {entry.stop}: what {channel.name(rank)} received "
                        f"is not what {channel.name(bucket.owner)} sent"
                    )


def _told(digests: Digests, number: int, bucket: Bucket) -> list[Any]:
    """A rank's digests of a bucket; None for each entry where it told no such list."""
    told = digests.get(str(number))
    return told if isinstance(told, list) and len(told) == len(bucket.entries) else [None] * len(bucket.entries)


def reader(part: CopyPlan, views: Tensors, tensors: Tensors) -> Bound:
    """A copy from the targets back to where their elements lay in the bucket; casts, which change bits, are left out.

    Parameters
    ----------
    part : CopyPlan
        What scattered the bucket.
    views
        The entries in a second bucket.
    tensors
        The targets of the part.
    """
    pairs = zip(part.table.source.tolist(), part.table.target.tolist(), strict=True)
    table = part.table.where(np.array([_moves_bits(part, views, tensors, *pair) for pair in pairs], dtype=bool))
    shapes = tuple(tuple((extent, theirs, ours) for extent, ours, theirs in shape) for shape in table.shapes)
    back = Table(shapes, table.shape, table.target, table.source, table.target_offset, table.source_offset)
    plan = replace(
        part,
        sources={key: spec.replace(dtype=None) for key, spec in part.targets.items()},
        targets={key: spec.replace(dtype=None) for key, spec in part.sources.items()},
        source_keys=part.target_keys,
        target_keys=part.source_keys,
        strides=(part.strides[1], part.strides[0]),
        table=back,
    )
    return plan.bind(tensors, views)


def _moves_bits(part: CopyPlan, views: Tensors, tensors: Tensors, source: int, target: int) -> bool:
    return source >= 0 and views[part.source_keys[source]].dtype == tensors[part.target_keys[target]].dtype

# SPDX-License-Identifier: Apache-2.0
"""The wire in the notation: an entry is its source's layout in index order, or a flat slice of it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch

from ..plan import CopyPlan, compile
from ..spec import Spec
from .buckets import Bucket, Entry
from .holdings import Holding


def wire_spec(holding: Holding, entry: Entry) -> Spec:
    """What the elements of an entry are, once they lie in a bucket.

    A lying ``declared`` shape is dropped: the layout says what the bytes are, and the wire carries the bytes.
    """
    spec = holding.spec.replace(declared=None, dtype=holding.dtype)
    if entry.start == 0 and entry.stop == holding.elements:
        return spec
    mesh = "chunk"
    while mesh in spec.mesh or mesh in spec.layout.meshes:
        mesh += "_"
    chosen: dict[str, Any] = {**spec.mesh, mesh: slice(entry.start, entry.stop)}
    return spec.replace(layout=f"({spec.layout})/{mesh}", mesh=chosen)


def entry_view(buffer: torch.Tensor, entry: Entry, holding: Holding) -> torch.Tensor:
    """The entry's elements in a bucket's bytes, of the shape that `wire_spec` says."""
    flat = buffer[entry.offset : entry.offset + entry.nbytes].view(holding.dtype)
    whole = entry.start == 0 and entry.stop == holding.elements
    return flat.view(holding.spec.replace(declared=None).shape()) if whole else flat


def flat_view(buffer: torch.Tensor, entry: Entry, dtype: torch.dtype) -> torch.Tensor:
    """The entry's elements in a bucket's bytes, one after another."""
    return buffer[entry.offset : entry.offset + entry.nbytes].view(dtype)


def gather_plan(tensors: Mapping[str, torch.Tensor], entries: Sequence[Entry]) -> CopyPlan:
    """The copy that puts entries one after another in index order, whatever the strides of their tensors are.

    It knows shapes alone, so that tensors of one shape are planned together and padding travels as it is.
    """
    names = list(dict.fromkeys(entry.name for entry in entries))
    number = {name: place for place, name in enumerate(names)}
    sources: dict[Hashable, Spec] = {name: _shaped(tensors[name], number[name], len(names)) for name in names}
    targets: dict[Hashable, Spec] = {}
    for entry in entries:
        targets[entry.key] = _flat(sources[entry.name], tensors[entry.name], entry)
    return compile(sources, targets, unused="allow")


def _shaped(tensor: torch.Tensor, number: int, count: int) -> Spec:
    axes = [f"x{place}" for place in range(tensor.dim())]
    dims: dict[str, int] = dict(zip(axes, tensor.shape, strict=True)) | {"n": count}
    return Spec(" ".join(axes), of=f"{tuple(tensor.shape)}", dims=dims, at={"n": number}, dtype=tensor.dtype)


def _flat(source: Spec, tensor: torch.Tensor, entry: Entry) -> Spec:
    if tensor.dim() == 0:
        return source
    if entry.start == 0 and entry.stop == tensor.numel():
        return source.replace(layout=f"({source.layout})")
    return source.replace(layout=f"({source.layout})/chunk", mesh={"chunk": slice(entry.start, entry.stop)})


def buffers(sizes: Sequence[int], device: torch.device) -> list[torch.Tensor]:
    """Bytes for buckets, each starting on a cache line."""
    return [torch.empty(size, dtype=torch.uint8, device=device) for size in sizes]


def slot_sizes(buckets: Sequence[Bucket]) -> tuple[int, int]:
    """How long the two buffers must be that alternate."""
    return max((b.nbytes for b in buckets[::2]), default=0), max((b.nbytes for b in buckets[1::2]), default=0)

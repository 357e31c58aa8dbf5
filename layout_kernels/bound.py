# SPDX-License-Identifier: Apache-2.0
"""A plan bound to tensors: everything is checked here, once, so that a run only replays."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .aliasing import drop_aliases, overlaps_itself, refuse_shared
from .backends import Backend, choose
from .errors import LayoutError, nearest
from .spec import Spec
from .table import Table

if TYPE_CHECKING:
    from .plan import CopyPlan

CASTS = (torch.bfloat16, torch.float16, torch.float32)
Tensors = Mapping[Hashable, torch.Tensor]


class Bound:
    """What `CopyPlan.bind` returns: a plan with the addresses of its tensors.

    Attributes
    ----------
    backend : str
        The name of the backend that runs it.
    launches : int
        How many kernels a run starts.
    nbytes : int
        How many target bytes a run writes.
    table_nbytes : int
        What its block table takes beside the weights.
    """

    def __init__(
        self,
        plan: CopyPlan,
        sources: Sequence[torch.Tensor | None],
        targets: Sequence[torch.Tensor | None],
        backend: Backend,
    ) -> None:
        self.backend = backend.name
        _check_bounds(plan.table, sources, targets)
        table = drop_aliases(plan.table, targets, plan.target_keys)
        refuse_shared(sources, targets, plan.source_keys, plan.target_keys)
        self._tensors = [tensor for tensor in (*sources, *targets) if tensor is not None]
        keys = zip((*plan.source_keys, *plan.target_keys), (*sources, *targets), strict=True)
        self._keys = [key for key, tensor in keys if tensor is not None]
        self._addresses = self._where()
        self._replay = backend.prepare(table, _detached(sources), _detached(targets))
        self.launches, self.table_nbytes = self._replay.launches, self._replay.table_nbytes
        self.nbytes = _bytes_written(table, targets)

    def _where(self) -> list[int]:
        return list(map(torch.Tensor.data_ptr, self._tensors))

    def run(self) -> None:
        """Fill the targets in place.

        Raises
        ------
        LayoutError
            Where a tensor has moved since it was bound; nothing was written.
        """
        addresses = self._where()
        if addresses != self._addresses:
            moved = next(k for k, old, new in zip(self._keys, self._addresses, addresses, strict=True) if old != new)
            raise LayoutError(f"{moved!r} has moved in memory since it was bound: bind the plan again")
        self._replay()


def bind(plan: CopyPlan, sources: Tensors, targets: Tensors, backend: str) -> Bound:
    """See `CopyPlan.bind`."""
    plan = plan.fitted(sources, targets)
    ours, theirs = _numbered(plan.source_keys, sources), _numbered(plan.target_keys, targets)
    _check_dtypes(plan, ours, theirs)
    chosen = choose(backend, [tensor for tensor in (*ours, *theirs) if tensor is not None])
    for key, tensor in (*sources.items(), *targets.items()):
        if tensor.device.type not in chosen.devices:
            raise LayoutError(
                f"{key!r} is on {tensor.device}, but backend {chosen.name!r} runs on {', '.join(chosen.devices)}"
            )
    return Bound(plan, ours, theirs, chosen)


def _numbered(keys: Sequence[Hashable], tensors: Tensors) -> list[torch.Tensor | None]:
    return [tensors.get(key) for key in keys]


def _detached(tensors: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """For executors; a detached tensor would not notice that its own is given other memory, so a Bound keeps that."""
    return [None if tensor is None else tensor.detach() for tensor in tensors]


def _bytes_written(table: Table, targets: Sequence[torch.Tensor | None]) -> int:
    sizes = np.array([0 if tensor is None else tensor.element_size() for tensor in targets], dtype=np.int64)
    return int((table.elements * sizes[table.target]).sum()) if len(table) else 0


def actual_strides(side: str, specs: Mapping[Hashable, Spec], tensors: Tensors) -> dict[Hashable, tuple[int, ...]]:
    """Check that the tensors are those of the Specs; the strides of those that are not contiguous."""
    for key in specs:
        if key not in tensors:
            raise LayoutError(f"{side} {key!r} has a Spec but no tensor{nearest(key, tensors)}")
    strides: dict[Hashable, tuple[int, ...]] = {}
    for key, tensor in tensors.items():
        if key not in specs:
            raise LayoutError(f"{side} {key!r} is a tensor without a Spec{nearest(key, specs)}")
        _check_tensor(side, key, specs[key], tensor)
        if not tensor.is_contiguous():
            strides[key] = tensor.stride()
    return strides


def _check_tensor(side: str, key: Hashable, spec: Spec, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or not _has_memory(tensor):
        seen = f"{tensor.layout} on {tensor.device}" if isinstance(tensor, torch.Tensor) else "no tensor"
        local = ": give the local tensor, .to_local()" if hasattr(tensor, "to_local") else ""
        raise LayoutError(f"{side} {key!r} is {type(tensor).__name__} ({seen}), not a dense tensor with memory{local}")
    if tensor.is_conj() or tensor.is_neg():
        raise LayoutError(
            f"{side} {key!r} is lazily conjugated or negated: call .resolve_conj() or .resolve_neg() first"
        )
    shape = spec.shape()
    if tuple(tensor.shape) != shape:
        declared = f" (declared {str(spec.declared)!r})" if spec.declared else ""
        raise LayoutError(
            f"{side} {key!r} has shape {tuple(tensor.shape)}, but {str(spec.layout)!r}{declared} has {shape}"
        )
    if spec.dtype is not None and tensor.dtype != spec.dtype:
        raise LayoutError(f"{side} {key!r} is {tensor.dtype}, but its Spec says {spec.dtype}")
    if tensor.is_contiguous():
        return
    if spec.declared is not None:
        raise LayoutError(
            f"{side} {key!r} is declared {str(spec.declared)!r} and must be contiguous: strides are {tensor.stride()}"
        )
    if side == "target" and tensor.numel() and _writes_twice(tensor):
        raise LayoutError(
            f"target {key!r} with shape {tuple(tensor.shape)} and strides {tensor.stride()} may overlap itself"
        )


def _writes_twice(tensor: torch.Tensor) -> bool:
    repeated = any(stride == 0 and extent > 1 for stride, extent in zip(tensor.stride(), tensor.shape, strict=True))
    return repeated or overlaps_itself(tensor)


def _has_memory(tensor: torch.Tensor) -> bool:
    """Wrapper subclasses and fake tensors have a shape but no address."""
    if tensor.is_meta or hasattr(tensor, "fake_mode"):
        return False
    return tensor.numel() == 0 or tensor.data_ptr() != 0


def _check_bounds(table: Table, sources: Sequence[torch.Tensor | None], targets: Sequence[torch.Tensor | None]) -> None:
    """No block reaches outside its tensor, whatever file the table came from."""
    for place, (numbers, offsets, tensors) in enumerate(
        ((table.source, table.source_offset, sources), (table.target, table.target_offset, targets)), start=1
    ):
        reach = np.array(
            [sum((digit[0] - 1) * digit[place] for digit in shape) for shape in table.shapes], dtype=np.int64
        )
        room = np.array([0 if tensor is None else _span(tensor) for tensor in tensors] + [0], dtype=np.int64)
        wanted = numbers >= 0
        last = offsets[wanted] + reach[table.shape[wanted]] if len(table) else offsets
        if ((offsets[wanted] < 0) | (last >= room[numbers[wanted]])).any():
            raise LayoutError("the plan's table reaches outside a tensor: it was not derived from these Specs")


def _span(tensor: torch.Tensor) -> int:
    """How many elements lie between a tensor's first and its last, both counted."""
    if not tensor.numel():
        return 0
    return 1 + sum(stride * (extent - 1) for stride, extent in zip(tensor.stride(), tensor.shape, strict=True))


def _check_dtypes(
    plan: CopyPlan, sources: Sequence[torch.Tensor | None], targets: Sequence[torch.Tensor | None]
) -> None:
    """A dtype that differs is an error, unless the target's Spec declares the cast."""
    ours, theirs = ([None if tensor is None else tensor.dtype for tensor in side] for side in (sources, targets))
    numbers = {dtype: number for number, dtype in enumerate({*ours, *theirs})}
    held, wanted = (np.array([numbers[dtype] for dtype in side], dtype=np.int64) for side in (ours, theirs))
    reads = plan.table.source >= 0
    source, target = plan.table.source[reads], plan.table.target[reads]
    differs = held[source] != wanted[target] if len(source) else np.zeros(0, dtype=bool)
    for one, other in _distinct_pairs(source[differs], target[differs]):
        key = plan.target_keys[other]
        where = f"source {plan.source_keys[one]!r} is {ours[one]} and target {key!r} is {theirs[other]}"
        if plan.targets[key].dtype is None:
            raise LayoutError(f"{where}: bits move unchanged unless the target's Spec says dtype={theirs[other]}")
        if ours[one] not in CASTS or theirs[other] not in CASTS:
            raise LayoutError(f"{where}: only {', '.join(map(str, CASTS))} are cast")


def _distinct_pairs(ones: Any, others: Any) -> list[tuple[int, int]]:
    return sorted(set(zip(ones.tolist(), others.tolist(), strict=True)))

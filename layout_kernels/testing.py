# SPDX-License-Identifier: Apache-2.0
"""For tests, also those of other projects: what the notation means, by listing every element, and byte comparison.

Nothing here knows the compiler. An element's identity is read off position by position, so that what is derived can be
held against what was meant: fill the sources with `tagged`, convert with whatever is under test, and compare with the
`tagged` targets; or let `convert` carry real weights through the logical tensors.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
import socket
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .backends.reference import cast
from .dims import Dims
from .errors import LayoutError
from .notation import Concat, Count, Name, Node, Product, Select
from .spec import Spec

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Position:
    """What stands at one position of a tensor dimension."""

    tags: frozenset[str] = frozenset()
    coordinates: Mapping[str, int] = field(default_factory=dict)
    short: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Part:
    """Elements of one tensor that share tags and axes: where they lie, and their number in the logical part.

    ``place`` are index arrays of every dimension (as for ``tensor[np.ix_(*place)]``), ``number`` the row-major number
    over the whole axes in order of name, -1 where a short axis is only padding.
    """

    of: str
    tags: frozenset[str]
    axes: tuple[tuple[str, int], ...]
    place: tuple[npt.NDArray[np.int64], ...]
    number: npt.NDArray[np.int64]
    padding: bool
    short: frozenset[str]


def positions(node: Node, sizes: Dims, mesh: Mapping[str, Any]) -> list[Position]:
    """What stands where along one axis of a layout: the grammar, read literally."""
    match node:
        case Name(name):
            axis = sizes[name]
            pad = Position(coordinates={name: -1}, short=frozenset((name,)))
            return [Position(coordinates={name: c}) for c in range(axis.size)] + [pad] * (axis.length - axis.size)
        case Count(size):
            return [Position()] * size
        case Product(axes):
            lists = [positions(axis, sizes, mesh) for axis in axes]
            return [_together(combo) for combo in itertools.product(*lists)]
        case Concat(segments):
            return [_tagged(p, tag) for tag, axis in segments for p in positions(axis, sizes, mesh)]
        case Select(axis, name):
            inner = positions(axis, sizes, mesh)
            chosen = mesh[name]
            if isinstance(chosen, tuple):
                size, coordinate = chosen
                chosen = slice(coordinate * len(inner) // size, (coordinate + 1) * len(inner) // size)
            return inner[chosen] if isinstance(chosen, slice) else [inner[position] for position in chosen]


def _tagged(position: Position, tag: str) -> Position:
    return position if tag == "_" else Position(position.tags | {tag}, position.coordinates, position.short)


def _together(found: tuple[Position, ...]) -> Position:
    coordinates = {axis: c for position in found for axis, c in position.coordinates.items()}
    return Position(
        frozenset().union(*(p.tags for p in found)), coordinates, frozenset().union(*(p.short for p in found))
    )


def listing(spec: Spec, dims: Mapping[str, Any] | None = None) -> Iterator[Part]:
    """Every element of a tensor, by parts."""
    sizes = spec.sizes(dims)
    kinds = []
    for node in spec.layout.dimensions:
        alike: dict[Any, list[tuple[int, Position]]] = {}
        for place, position in enumerate(positions(node, sizes, spec.mesh)):
            alike.setdefault((position.tags, frozenset(position.coordinates), position.short), []).append(
                (place, position)
            )
        kinds.append(list(alike.items()))
    for combo in itertools.product(*kinds):
        tags = frozenset().union(*(tags for (tags, _, _), _ in combo))
        short = frozenset().union(*(short for (_, _, short), _ in combo))
        places = tuple(np.array([place for place, _ in members]) for _, members in combo)
        axes, number = _number(spec, sizes, combo)
        padding = bool(short) or any(tag in spec.padding for tag in tags)
        yield Part(spec.of, tags, axes, places, number, padding, short)


def _number(spec: Spec, sizes: Dims, combo: Any) -> tuple[tuple[tuple[str, int], ...], npt.NDArray[np.int64]]:
    """The number of each element within its logical part, and the whole axes that it counts over."""
    rank = len(combo)
    coordinates: dict[str, Any] = {name: np.int64(value) for name, value in spec.at.items()}
    for dimension, ((_, names, _), members) in enumerate(combo):
        for name in names:
            column = np.array([position.coordinates[name] for _, position in members], dtype=np.int64)
            coordinates[name] = column.reshape([-1 if d == dimension else 1 for d in range(rank)])
    outside: Any = False
    merged = True
    while merged:
        merged = False
        for axis in sizes.axes.values():
            if axis.parts and all(part in coordinates for part in axis.parts):
                coordinates[axis.name] = sum(coordinates.pop(part) * sizes.weight(part) for part in axis.parts)
                outside = outside | (coordinates[axis.name] >= axis.size)
                merged = True
    axes = tuple((name, sizes[name].size) for name in sorted(coordinates))
    number: Any = np.zeros([len(members) for _, members in combo], dtype=np.int64)
    for place, (name, _) in enumerate(axes):
        number = number + coordinates[name] * math.prod(size for _, size in axes[place + 1 :])
    return axes, np.where(outside, -1, number)


def tagged(
    spec: Spec, dtype: torch.dtype, *, dims: Mapping[str, Any] | None = None, seed: int = 0, padding: int = 0
) -> torch.Tensor:
    """A tensor whose every element says by its bits which element of which logical tensor it is.

    Equal identities get equal bits in every Spec, whatever its layout; all bit patterns occur, NaN among them.

    Parameters
    ----------
    spec : Spec
        What the tensor holds.
    dtype : torch.dtype
        Its dtype; elements of 1, 2, 4 or 8 bytes.
    seed : int
        Another seed, other bits: the weights of another training step.
    padding : int
        The bits of elements that hold no weight.
    """
    kind = BITS[dtype.itemsize]
    shape = Spec(spec.layout, dims=spec.dims, mesh=spec.mesh).shape(dims)
    bits = torch.full(shape, padding, dtype=kind)
    for part in listing(spec, dims):
        if not part.padding:
            mixed = _mix(part.number, f"{part.of} {sorted(part.tags)} {part.axes} {seed}")
            mixed >>= 63 - (dtype.itemsize * 8 - 1)  # the high bits are the best mixed; the sign stays 0
            mixed[part.number < 0] = padding
            _put(bits, part, torch.from_numpy(mixed).to(kind))
    return bits.view(dtype).reshape(spec.shape(dims))


def _mix(number: npt.NDArray[np.int64], salt: str) -> npt.NDArray[np.int64]:
    """Well-spread bits out of small numbers: neighbours must differ in their low bytes."""
    start = int.from_bytes(hashlib.sha256(salt.encode()).digest()[:8], "big")
    mixed = number.astype(np.uint64)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    mixed += np.uint64(start)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed >>= np.uint64(1)
    return mixed.view(np.int64)


def _put(tensor: torch.Tensor, part: Part, values: torch.Tensor) -> None:
    if tensor.dim() == 0:
        tensor.copy_(values.reshape(()))
    else:
        tensor[np.ix_(*part.place)] = values


def convert(
    sources: Mapping[Hashable, Spec],
    tensors: Mapping[Hashable, torch.Tensor],
    targets: Mapping[Hashable, Spec],
    into: Mapping[Hashable, torch.Tensor],
    dims: Mapping[str, Any] | None = None,
) -> dict[Hashable, torch.Tensor]:
    """The reference conversion: sources -> logical tensors -> targets, element by element.

    Parameters
    ----------
    sources, tensors : mappings
        Specs and tensors of the sources; of two sources of one element the first counts.
    targets : mapping
        Specs of the targets.
    into : mapping
        Tensors of the targets' shapes and dtypes before the copy: padding that is kept comes from here.

    Returns
    -------
    dict
        New tensors, as the targets must be afterwards.

    Raises
    ------
    LayoutError
        Where a target element has no source.
    """
    logical: dict[Any, tuple[torch.Tensor, torch.Tensor]] = {}
    for key, spec in sources.items():
        _scatter(logical, spec, tensors[key], dims)
    return {key: _gather(logical, key, spec, into[key], dims) for key, spec in targets.items()}


def _by_layout(spec: Spec, tensor: torch.Tensor, dims: Mapping[str, Any] | None) -> torch.Tensor:
    """The tensor in the shape that its layout (not its declared shape) has."""
    return tensor.detach().reshape(Spec(spec.layout, dims=spec.dims, mesh=spec.mesh).shape(dims))


def _scatter(logical: dict[Any, Any], spec: Spec, tensor: torch.Tensor, dims: Mapping[str, Any] | None) -> None:
    values = _by_layout(spec, tensor, dims)
    for part in listing(spec, dims):
        if part.padding:
            continue
        size = math.prod(extent for _, extent in part.axes)
        whole, filled = logical.setdefault(
            (part.of, part.tags, part.axes),
            (torch.zeros(size, dtype=tensor.dtype), torch.zeros(size, dtype=torch.bool)),
        )
        held = values[np.ix_(*part.place)] if values.dim() else values
        number = torch.from_numpy(part.number.reshape(-1))
        new = (number >= 0) & ~filled[number.clamp(min=0)]
        whole[number[new]] = held.reshape(-1)[new]
        filled[number[new]] = True


def _gather(
    logical: dict[Any, Any], key: Hashable, spec: Spec, before: torch.Tensor, dims: Mapping[str, Any] | None
) -> torch.Tensor:
    result = _by_layout(spec, before.clone().contiguous(), dims)
    for part in listing(spec, dims):
        number = torch.from_numpy(part.number)
        kept = result[np.ix_(*part.place)] if result.dim() else result
        real = number >= 0
        if _zeroed(spec, part):
            kept = torch.zeros_like(kept)
        if part.padding or not real.any():
            _put(result, part, kept)
            continue
        held = logical.get((part.of, part.tags, part.axes))
        if held is None or not held[1][number[real]].all():
            raise LayoutError(
                f"target {key!r}: elements of {part.of!r} {sorted(part.tags)} over {part.axes} have no source"
            )
        _put(result, part, torch.where(real, cast(held[0][number.clamp(min=0)], result.dtype), kept))
    return result.reshape(before.shape)


def _zeroed(spec: Spec, part: Part) -> bool:
    """Whether what holds no weight in a part is declared to become zero."""
    return any(spec.padding.get(name) == "zero" for name in (*part.tags, *part.short, *(axis for axis, _ in part.axes)))


def assert_same_bytes(actual: torch.Tensor, expected: torch.Tensor, name: object = "tensor") -> None:
    """Raise AssertionError unless both tensors have the same shape, dtype and bytes.

    The message says how many elements differ, where the first one lies and what both sides hold there.
    """
    assert actual.shape == expected.shape, f"{name}: shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    assert actual.dtype == expected.dtype, f"{name}: {actual.dtype}, expected {expected.dtype}"
    ours, theirs = (
        t.detach().cpu().clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)
        for t in (actual, expected)
    )
    if torch.equal(ours, theirs):
        return
    size = actual.element_size()
    wrong = (ours != theirs).reshape(-1, size).any(dim=1).nonzero().reshape(-1)
    first = int(wrong[0])
    where = tuple(int(c) for c in np.unravel_index(first, tuple(actual.shape))) if actual.dim() else ()
    held, wanted = (bytes(t[first * size : (first + 1) * size].tolist()).hex() for t in (ours, theirs))
    raise AssertionError(
        f"{name}: {len(wrong)} of {actual.numel()} elements differ; the first at {where}: "
        f"bytes {held} ({actual[where]}), expected {wanted} ({expected[where]})"
    )


def free_port() -> int:
    """A TCP port of this machine on which nobody listens, for processes that are about to meet there.

    It lies below the ports that systems hand out to connections: one of those could be taken before it is used.
    """
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise LayoutError("none of 100 ports between 20000 and 32000 is free")

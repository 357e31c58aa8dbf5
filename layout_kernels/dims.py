# SPDX-License-Identifier: Apache-2.0
"""Sizes of axes, and how an axis is cut into others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

from .errors import LayoutError, nearest
from .notation import DEEPEST

V = TypeVar("V")


class Frozen(Mapping[str, V], Generic[V]):
    """A mapping that never changes, so that its hash is computed once and thousands of Specs can share it."""

    __slots__ = ("_hash", "_items")

    def __init__(self, items: Mapping[str, V]) -> None:
        self._items = dict(items)
        self._hash = hash(tuple(sorted((key, hashable(value)) for key, value in self._items.items())))

    def __getitem__(self, key: str) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Frozen) and self._hash != other._hash:
            return False
        return isinstance(other, Mapping) and self._items == dict(other)

    def __repr__(self) -> str:
        return repr(self._items)


def hashable(value: object) -> str:
    """A text that tells apart the values that dims and meshes hold: numbers, tuples, slices, lists."""
    return repr(value)


@dataclass(frozen=True)
class Axis:
    """One axis: ``size`` positions that count, in ``length`` positions of memory, cut into ``parts`` (or not).

    ``length`` exceeds ``size`` only for a short axis, whose last positions are padding.
    """

    name: str
    size: int
    length: int
    parts: tuple[str, ...] = ()


class Dims:
    """Every axis of a Spec, resolved; parts know their whole."""

    def __init__(self, given: Mapping[str, object]) -> None:
        self._given = given
        self.axes: dict[str, Axis] = {}
        self.whole: dict[str, str] = {}
        for name in given:
            self._resolve(name, ())
        for axis in self.axes.values():
            for part in axis.parts:
                if part in self.whole:
                    raise LayoutError(
                        f"axis {part!r} is a part of both {self.whole[part]!r} and {axis.name!r}: cuts must nest"
                    )
                self.whole[part] = axis.name

    def __getitem__(self, name: str) -> Axis:
        if name not in self.axes:
            raise LayoutError(f"axis {name!r} has no size: dims name {sorted(self.axes)}{nearest(name, self.axes)}")
        return self.axes[name]

    def weight(self, part: str) -> int:
        """How far the whole axis's coordinate moves when the part's moves by one."""
        parts = self.axes[self.whole[part]].parts
        return math.prod(self.axes[other].size for other in parts[parts.index(part) + 1 :])

    def _resolve(self, name: str, above: tuple[str, ...]) -> Axis:
        if name in self.axes:
            return self.axes[name]
        if len(above) > DEEPEST:
            raise LayoutError(f"axis {above[0]!r} is cut more than {DEEPEST} deep")
        if name in above:
            raise LayoutError(f"axis {name!r} is cut into itself: {' -> '.join((*above, name))}")
        if name not in self._given:
            raise LayoutError(f"axis {above[-1]!r} is cut into {name!r}, which has no size{nearest(name, self._given)}")
        size, parts = _cut(name, self._given[name])
        if parts:
            product = math.prod(self._resolve(part, (*above, name)).size for part in parts)
            if size is not None and size > product:
                raise LayoutError(f"axis {name!r} has {size} positions but its parts {parts} hold only {product}")
            axis = Axis(name, product if size is None else size, product, parts)
        else:
            axis = Axis(name, size or 0, size or 0)
        self.axes[name] = axis
        return axis


def _cut(name: str, value: object) -> tuple[int | None, tuple[str, ...]]:
    """``96`` -> (96, ()); ``("i1", "i0")`` -> (None, parts); ``(96, "i1", "i0")`` -> (96, parts)."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value, ()
    if isinstance(value, (tuple, list)) and value:
        size, parts = (value[0], value[1:]) if isinstance(value[0], int) else (None, value)
        if (
            parts
            and all(isinstance(part, str) for part in parts)
            and len(set(parts)) == len(parts)
            and (size or 0) >= 0
        ):
            return size, tuple(parts)
    raise LayoutError(f"axis {name!r} is {value!r}: a size, a tuple of axes or (size, axes…) was wanted")


@lru_cache(maxsize=4096)
def resolve(dims: Frozen[object]) -> Dims:
    """The resolved axes of ``dims``; computed once for all Specs that share them."""
    return Dims(dims)

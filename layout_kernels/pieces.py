# SPDX-License-Identifier: Apache-2.0
"""From Specs to pieces: what a tensor holds, as boxes of coordinates with a place in memory.

A *run* is a stretch of one tensor dimension, seen from its positions: which coordinates stand there. A *piece* is the
same thing seen from its coordinates: for every elementary axis a comb whose payload says where in memory they stand.
Many tensors of one pattern (the experts of all layers) are one group and so have their pieces in common: the
coordinates in ``at`` are axes like the others, except that they step from tensor to tensor. A place in memory is
therefore a vector (tensor, offset in elements).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .combs import Comb, Digit, Vector, add, clip
from .dims import Dims
from .errors import LayoutError
from .notation import Concat, Count, Name, Node, Product, Select
from .spec import Spec, length, selected

MOST_PIECES = 2**16
MOST_ELEMENTS = 2**62


@dataclass(frozen=True)
class Group:
    """Tensors of one pattern whose ``at`` coordinates form a full grid; numbered row-major from ``first``.

    ``grid`` holds (axis, start, count) for every axis of ``at``; ``strides`` those of every tensor, in elements.
    """

    spec: Spec
    sizes: Dims
    first: int
    grid: tuple[tuple[str, int, int], ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """A box of one logical tensor: a comb of coordinates on every axis, and where in memory they stand.

    Places add up: that of an element is ``place``, the origins of all combs, and the digits' payloads. ``uncounted``
    are digits of memory that no coordinate counts: the copies that an INT makes, and all of a piece that is padding,
    for which ``padding`` says "keep" or "zero".
    """

    group: Group
    tags: frozenset[str]
    axes: Mapping[str, Comb]
    place: Vector
    uncounted: tuple[tuple[int, Vector], ...] = ()
    padding: str | None = None

    @property
    def identity(self) -> tuple[str, frozenset[str], frozenset[str]]:
        """Pieces can hold the same elements only where these agree."""
        return self.group.spec.of, self.tags, frozenset(self.axes)


@dataclass(frozen=True)
class Run:
    """A stretch of positions with the coordinates that stand there; ``short`` names the axes that it only pads."""

    tags: frozenset[str]
    axes: frozenset[str]
    comb: Comb
    short: frozenset[str] = frozenset()


def gather(
    specs: Mapping[Any, Spec],
    dims: Mapping[str, Any] | None,
    strides: Mapping[Any, tuple[int, ...]],
    *,
    ordered: bool = False,
) -> tuple[list[Group], list[Any]]:
    """Groups of tensors of one pattern, and the keys in the order of their numbers.

    Equal Specs (replicas in a source, one-to-many in a target) go to groups of their own, in the order of the mapping.
    With ``ordered`` a group also ends where the mapping goes on with another pattern of the same logical tensor, so
    that the groups are in the order of the mapping as well.
    """
    patterns: dict[Any, list[dict[Vector, Any]]] = {}
    stretch: dict[str, tuple[int, Any]] = {}  # of each logical tensor: how many patterns came before, and the last one
    for key, spec in specs.items():
        pattern = spec.pattern(), strides.get(key)
        number, last = stretch.get(spec.of, (0, None))
        if ordered and pattern != last:
            number += 1
            stretch[spec.of] = number, pattern
        rounds = patterns.setdefault((pattern, number), [{}])
        at = tuple(value for _, value in sorted(spec.at.items()))
        for taken in rounds:
            if at not in taken:
                taken[at] = key
                break
        else:
            rounds.append({at: key})
    groups: list[Group] = []
    keys: list[Any] = []
    for ((_, given), _), rounds in patterns.items():
        for taken in rounds:
            _add_groups(groups, keys, specs, dims, taken, given)
    return groups, keys


def _add_groups(
    groups: list[Group],
    keys: list[Any],
    specs: Mapping[Any, Spec],
    dims: Mapping[str, Any] | None,
    taken: dict[Vector, Any],
    strides: tuple[int, ...] | None,
) -> None:
    key = next(iter(taken.values()))
    spec = specs[key]
    sizes = spec.sizes(dims)
    try:
        shape = [length(node, sizes, spec.mesh) for node in spec.layout.dimensions]
        spec.shape(dims)
        if math.prod(shape) > MOST_ELEMENTS:
            raise LayoutError(f"{str(spec.layout)!r} has shape {tuple(shape)}: more than {MOST_ELEMENTS} elements")
    except LayoutError as error:
        raise LayoutError(f"{key!r}: {error}") from error
    names = sorted(spec.at)
    _check_coordinates(key, spec, sizes, names, taken)
    for grid in _grids(sorted(taken)):
        named = tuple((name, start, count) for name, (start, count) in zip(names, grid, strict=True))
        groups.append(Group(spec, sizes, len(keys), named, strides or row_major(shape)))
        keys += [taken[at] for at in itertools.product(*(range(start, start + count) for start, count in grid))]


def _check_coordinates(key: Any, spec: Spec, sizes: Dims, names: Sequence[str], taken: Iterable[Vector]) -> None:
    for place, name in enumerate(names):
        if name in spec.layout.axes:
            raise LayoutError(f"{key!r}: axis {name!r} stands both in the layout {str(spec.layout)!r} and in at")
        largest = max(at[place] for at in taken)
        if largest >= sizes[name].size:
            raise LayoutError(f"{key!r}: at {name}={largest} is out of range: {name} has {sizes[name].size} positions")


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor, in elements."""
    strides = [1] * len(shape)
    for place in range(len(shape) - 2, -1, -1):
        strides[place] = strides[place + 1] * shape[place + 1]
    return tuple(strides)


def _grids(rows: Sequence[Vector]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Sorted coordinates as full grids of ranges (start, count), one for each column."""
    if rows and not rows[0]:
        yield ()
        return
    same: dict[tuple[int, int], list[Vector]] = {}
    for prefix, members in itertools.groupby(rows, key=lambda row: row[:-1]):
        for start, count in _ranges([row[-1] for row in members]):
            same.setdefault((start, count), []).append(prefix)
    for last, prefixes in same.items():
        for grid in _grids(prefixes):
            yield (*grid, last)


def _ranges(values: Sequence[int]) -> Iterator[tuple[int, int]]:
    """``[3, 4, 5, 9]`` -> (3, 3), (9, 1)."""
    start = 0
    for place in range(1, len(values) + 1):
        if place == len(values) or values[place] != values[place - 1] + 1:
            yield values[start], place - start
            start = place


def pieces(group: Group, *, repeats: bool) -> list[Piece]:
    """What every tensor of a group holds.

    Parameters
    ----------
    repeats : bool
        Whether an element may stand several times (INT, lists), as in a target. If not, its first copy is taken.
    """
    reader = _Reader(group, repeats)
    dimensions = [reader.runs(node)[0] for node in group.spec.layout.dimensions]
    _refuse_too_many(group.spec, math.prod(map(len, dimensions)))
    found: list[Piece] = []
    for runs in itertools.product(*dimensions):
        found += reader.assemble(runs)
    return found


def _refuse_too_many(spec: Spec, count: int) -> None:
    """A layout may come from another process: a line of text must not take all memory."""
    if count > MOST_PIECES:
        raise LayoutError(f"layout {str(spec.layout)!r} has {count} pieces; at most {MOST_PIECES} are read")


class _Reader:
    """Reads one group's layout; holds what all rules need."""

    def __init__(self, group: Group, repeats: bool) -> None:
        self.group, self.spec, self.sizes, self.repeats = group, group.spec, group.sizes, repeats
        self.names = sorted(self.spec.layout.axes)
        self.zero: Vector = (0,) * len(self.names)

    # -- positions: one rule of the grammar each; runs and how many positions they fill ------------------------------

    def runs(self, node: Node) -> tuple[list[Run], int]:
        match node:
            case Name(name):
                return self.name(name)
            case Count(size):
                return [Run(frozenset(), frozenset(), self.range(0, size, self.zero))], size
            case Product(axes):
                return self.product(axes)
            case Concat(segments):
                return self.concat(segments)
            case Select():
                return self.select(node)

    def range(self, start: int, extent: int, payload: Vector) -> Comb:
        return Comb(start, (Digit(1, extent, payload),) if extent > 1 else (), self.zero)

    def name(self, name: str) -> tuple[list[Run], int]:
        axis = self.sizes[name]
        unit = tuple(int(other == name) for other in self.names)
        found = [Run(frozenset(), frozenset((name,)), self.range(0, axis.size, unit))] if axis.size else []
        if axis.length > axis.size:
            rest = self.range(axis.size, axis.length - axis.size, self.zero)
            found.append(Run(frozenset(), frozenset((name,)), rest, frozenset((name,))))
        return found, axis.length

    def product(self, axes: Sequence[Node]) -> tuple[list[Run], int]:
        found, filled = self.runs(axes[0])
        for node in axes[1:]:
            inner, size = self.runs(node)
            _refuse_too_many(self.spec, len(found) * len(inner))
            found = [self.join(one, two, size) for one in found for two in inner]
            filled *= size
        return found, filled

    def join(self, one: Run, two: Run, size: int) -> Run:
        self.check_apart(one, two)
        digits = tuple(replace(digit, weight=digit.weight * size) for digit in one.comb.digits)
        comb = Comb(
            one.comb.start * size + two.comb.start, digits + two.comb.digits, add(one.comb.origin, two.comb.origin)
        )
        return Run(one.tags | two.tags, one.axes | two.axes, comb, one.short | two.short)

    def concat(self, segments: Sequence[tuple[str, Node]]) -> tuple[list[Run], int]:
        found: list[Run] = []
        filled = 0
        for tag, node in segments:
            inner, size = self.runs(node)
            tags = frozenset() if tag == "_" else frozenset((tag,))
            found += [replace(run, tags=run.tags | tags, comb=_shift(run.comb, filled)) for run in inner]
            filled += size
        return found, filled

    def select(self, node: Select) -> tuple[list[Run], int]:
        inner, whole = self.runs(node.axis)
        found: list[Run] = []
        filled = 0
        seen: set[int] = set()
        listed = isinstance(self.spec.mesh[node.mesh], list)
        for start, stop in selected(node, whole, self.spec.mesh):
            for low, high in _unseen(start, stop, seen) if listed and not self.repeats else [(start, stop)]:
                parts = [(run, part) for run in inner for part in clip(run.comb, low, high)]
                found += [replace(run, comb=_shift(part, filled - start)) for run, part in parts]
            filled += stop - start
        return found, filled

    def check_apart(self, one: Run, two: Run) -> None:
        """Two factors of a product may name one axis only where they hold padding, which has no identity."""
        if not self.padding(one.tags | two.tags, one.short | two.short):
            self.check_once(one.axes & two.axes)

    def check_once(self, twice: Iterable[str]) -> None:
        for name in twice:
            raise LayoutError(f"layout {str(self.spec.layout)!r} has axis {name!r} twice")

    # -- coordinates: one run of every dimension becomes pieces ------------------------------------------------------

    def assemble(self, runs: Sequence[Run]) -> list[Piece]:
        for one, two in itertools.combinations(runs, 2):
            self.check_apart(one, two)
        tags = frozenset().union(*(run.tags for run in runs))
        short = frozenset().union(*(run.short for run in runs))
        origin, offset = self.zero, 0
        steps: list[tuple[int, Vector, int]] = []  # extent, coordinates, stride
        for run, stride in zip(runs, self.group.strides, strict=True):
            origin, offset = add(origin, run.comb.origin), offset + run.comb.start * stride
            steps += [(digit.extent, digit.payload, digit.weight * stride) for digit in run.comb.digits]
        piece = Piece(self.group, tags, {}, (self.group.first, offset))
        padding = self.padding(tags, short)
        if padding:
            return [
                replace(piece, padding=padding, uncounted=self.grid_steps() + tuple((n, (0, s)) for n, _, s in steps))
            ]
        axes = dict(self.grid_axes())
        for axis in frozenset().union(*(run.axes for run in runs)):
            place = self.names.index(axis)
            digits = [Digit(move[place], extent, (0, stride)) for extent, move, stride in steps if move[place]]
            axes[axis] = Comb(origin[place], tuple(sorted(digits, key=lambda digit: -digit.weight)), (0, 0))
        copies = tuple((extent, (0, stride)) for extent, move, stride in steps if move == self.zero)
        return self.merge(replace(piece, axes=axes, uncounted=copies if self.repeats else ()))

    def padding(self, tags: Iterable[str], short: Iterable[str]) -> str | None:
        """How a piece is padding, if it is: "zero" outweighs "keep"."""
        said = {self.spec.padding[tag] for tag in tags if tag in self.spec.padding}
        said |= {self.spec.padding.get(axis, "keep") for axis in short}
        return max(said) if said else None

    def grid_steps(self) -> tuple[tuple[int, Vector], ...]:
        return tuple((digit.extent, digit.payload) for _, comb in self.grid_axes() for digit in comb.digits)

    def grid_axes(self) -> Iterator[tuple[str, Comb]]:
        step = 1
        for name, start, count in reversed(self.group.grid):
            yield name, Comb(start, (Digit(1, count, (step, 0)),) if count > 1 else (), (0, 0))
            step *= count

    def merge(self, piece: Piece) -> list[Piece]:
        """Parts of a cut axis become coordinates of the whole, once all are there; a short one is clipped."""
        for axis in self.sizes.axes.values():
            here = [part for part in axis.parts if part in piece.axes]
            if not here:
                continue
            if axis.name in piece.axes:
                self.check_once([axis.name])
            if len(here) == len(axis.parts):
                return self.merge_parts(piece, axis.name)
        return [piece]

    def merge_parts(self, piece: Piece, name: str) -> list[Piece]:
        axis = self.sizes[name]
        whole = Comb(0, (), (0, 0))
        for part in axis.parts:
            weight, comb = self.sizes.weight(part), piece.axes[part]
            digits = tuple(replace(digit, weight=digit.weight * weight) for digit in comb.digits)
            whole = Comb(whole.start + comb.start * weight, whole.digits + digits, add(whole.origin, comb.origin))
        others = {other: comb for other, comb in piece.axes.items() if other not in axis.parts}
        found: list[Piece] = []
        for comb in clip(whole, 0, axis.size):
            found += self.merge(replace(piece, axes={**others, name: comb}))
        how = self.spec.padding.get(name, "keep")
        for comb in clip(whole, axis.size, axis.length):
            place, uncounted = piece.place, piece.uncounted
            for other in (*others.values(), comb):
                place = add(place, other.origin)
                uncounted += tuple((digit.extent, digit.payload) for digit in other.digits)
            found.append(replace(piece, axes={}, place=place, uncounted=uncounted, padding=how))
        return found


def _shift(comb: Comb, by: int) -> Comb:
    return replace(comb, start=comb.start + by)


def _unseen(start: int, stop: int, seen: set[int]) -> list[tuple[int, int]]:
    """The parts of a range of positions that no earlier one held."""
    fresh = [position for position in range(start, stop) if position not in seen]
    seen.update(fresh)
    return [(low, low + count) for low, count in _ranges(fresh)]

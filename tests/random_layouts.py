# SPDX-License-Identifier: Apache-2.0
"""Random layouts of one random logical tensor: two sides drawn from one world hold the same elements.

A world has axes and concatenations. A side cuts the axes in its own way (nested, short), orders and nests them as it
likes, splits the tensor by tag, by `at` and by selections, and pads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import layout_kernels as lk
from layout_kernels.dims import Dims
from layout_kernels.notation import Concat, Count, Name, Node, Product, Select, walk
from layout_kernels.spec import length

Tags = dict[str, tuple[str, ...]]  # tag -> axes that only its segment has
MOST_ELEMENTS, MOST_TENSORS = 600, 24


@dataclass(frozen=True)
class World:
    """Every axis is a chain of factors, so that any two cuts of it nest."""

    chains: dict[str, tuple[int, ...]]
    common: tuple[str, ...]
    concats: tuple[Tags, ...]


@dataclass(frozen=True)
class Shape:
    """What one tensor of a side is made of, before it is arranged."""

    leaves: tuple[str, ...]
    concats: tuple[Tags, ...]
    at: dict[str, int]


def world(r: Random) -> World:
    """A few axes, none to two concatenations with axes of their own."""
    names = list("abcd"[: r.randrange(1, 5)])
    factors = [1, 2, 2, 2, 3, 3, 0] if r.randrange(8) == 0 else [1, 2, 2, 3]
    chains = {name: tuple(r.choice(factors) for _ in range(r.randrange(1, 4))) for name in names}
    kinds = [("q", "k", "v")[: r.randrange(1, 4)], ("gate", "up")][: r.randrange(3)]
    owner = {name: r.randrange(5) for name in names}
    concats, place = [], 0
    for kind in kinds:
        concats.append({tag: tuple(n for n in names if owner[n] == place + k) for k, tag in enumerate(kind)})
        place += len(kind)
    own = {name for tags in concats for axes in tags.values() for name in axes}
    return World(chains, tuple(name for name in names if name not in own), tuple(concats))


def cuts(r: Random, chains: dict[str, tuple[int, ...]], short: bool) -> dict[str, Any]:
    """The dims of one side: every axis whole, cut, cut twice, or short."""
    dims: dict[str, Any] = {"p": 2}
    for axis, chain in chains.items():
        size, stops = math.prod(chain), sorted(r.sample(range(1, len(chain)), r.randrange(len(chain))))
        groups = [math.prod(chain[a:b]) for a, b in itertools.pairwise([0, *stops, len(chain)])]
        longer = short and r.randrange(4) == 0
        if len(groups) == 1 and not longer:
            dims[axis] = size
            continue
        parts = [f"{axis}{number}" for number in range(len(groups))]
        dims.update(zip(parts, groups, strict=True))
        if len(groups) == 3 and r.randrange(2):  # a cut within a cut, perhaps with tiles that its part does not fill
            inner = short and r.randrange(2)
            dims[f"{axis}r"] = (groups[1] * groups[2], *parts[1:]) if inner else tuple(parts[1:])
            dims[parts[1]] += inner
            parts = [parts[0], f"{axis}r"]
        dims[parts[0]] += longer
        dims[axis] = (size, *parts) if longer else tuple(parts)
    return dims


def leaves(r: Random, dims: dict[str, Any], axis: str) -> list[str]:
    """The names by which a layout says an axis: its own, or those of its parts."""
    parts = [part for part in dims[axis] if isinstance(part, str)] if isinstance(dims[axis], tuple) else []
    if not parts or r.randrange(3) == 0:
        return [axis]
    return [leaf for part in parts for leaf in leaves(r, dims, part)]


@dataclass
class Builder:
    """Arranges one side."""

    r: Random
    world: World
    dims: dict[str, Any]
    target: bool
    pad: bool

    def shapes(self) -> list[Shape]:
        """The tensors by tag and `at`."""
        variants: list[tuple[Tags, ...]] = [self.world.concats]
        if self.world.concats and self.r.randrange(3) == 0:
            place = self.r.randrange(len(self.world.concats))
            split = [{tag: axes} for tag, axes in self.world.concats[place].items()]
            variants = [(*self.world.concats[:place], one, *self.world.concats[place + 1 :]) for one in split]
        named = [leaf for axis in self.world.common for leaf in leaves(self.r, self.dims, axis)]
        sizes = Dims(self.dims)
        movable = [leaf for leaf in named if 0 < sizes[leaf].size <= 4 and sizes[leaf].size == sizes[leaf].length]
        fixed = self.r.choice(movable) if movable and self.r.randrange(3) == 0 else None
        coordinates: list[dict[str, int]] = [{fixed: c} for c in range(sizes[fixed].size)] if fixed else [{}]
        kept = tuple(leaf for leaf in named if leaf != fixed)
        return [Shape(kept, concats, at) for concats in variants for at in coordinates]

    def arrange(self, items: Sequence[Node], concats: Sequence[Tags]) -> list[Node]:
        """Some order of all items; a concatenation takes some of them into each of its segments."""
        if not concats:
            return self.r.sample(list(items), len(items))
        tags, rest = concats[0], list(concats[1:])
        inside = [item for item in items if self.r.randrange(4) == 0]
        outside = [item for item in items if not any(item is other for other in inside)]
        deep = rest if self.r.randrange(3) == 0 else []
        segments = []
        for tag in self.r.sample(list(tags), len(tags)):
            own: list[Node] = [Name(leaf) for axis in tags[tag] for leaf in leaves(self.r, self.dims, axis)]
            segments.append((tag, self.product(self.arrange([*own, *inside], deep))))
        if self.pad and self.r.randrange(2):
            segments.insert(
                self.r.randrange(len(segments) + 1), ("pad", self.r.choice([Count(1), Count(2), Name("p")]))
            )
        nodes = self.arrange(outside, [] if deep else rest)
        nodes.insert(self.r.randrange(len(nodes) + 1), Concat(tuple(segments)))
        return nodes

    def product(self, nodes: Sequence[Node]) -> Node:
        """Nodes as one axis."""
        if len(nodes) > 2 and self.r.randrange(3) == 0:
            nodes = [Product(tuple(nodes[:2])), *nodes[2:]]
        return Count(1) if not nodes else nodes[0] if len(nodes) == 1 else Product(tuple(nodes))

    def dimensions(self, shape: Shape) -> list[Node]:
        """The layout of one tensor: dimensions, each a product."""
        items: list[Node] = [Name(leaf) for leaf in shape.leaves]
        if self.r.randrange(6) == 0:
            items.append(Count(self.r.choice([1, 2] if self.target else [1, 1, 2])))
        nodes = self.arrange(items, shape.concats)
        stops = sorted(self.r.sample(range(1, len(nodes)), self.r.randrange(len(nodes)))) if nodes else []
        return [self.product(nodes[a:b]) for a, b in itertools.pairwise([0, *stops, len(nodes)])] if nodes else []

    def select(self, dimensions: list[Node]) -> tuple[list[Node], list[dict[str, Any]]]:
        """Selections anywhere, and the mesh of every rank."""
        ways = {}
        for name in ("m", "n")[: self.r.randrange(3) if dimensions else 0]:
            place = self.r.randrange(len(dimensions))
            count = sum(1 for _ in walk(dimensions[place]))
            dimensions = list(dimensions)
            dimensions[place] = wrap(dimensions[place], self.r.randrange(count), name)
            ways[name] = self.r.randrange(1, 4), self.r.choice(["chunk", "chunk", "slice", "list"])
        ranks: list[dict[str, Any]] = [{}]
        sizes = Dims(self.dims)
        for node in reversed([node for dimension in dimensions for node in walk(dimension)]):  # inner ones first
            if isinstance(node, Select):
                ranks = [
                    {**mesh, node.mesh: entry}
                    for mesh in ranks
                    for entry in self.entries(length(node.axis, sizes, mesh), *ways[node.mesh])
                ]
        return dimensions, ranks

    def entries(self, whole: int, ranks: int, way: str) -> list[Any]:
        """Mesh entries that together hold all positions."""
        if way == "chunk" and whole % ranks == 0:
            return [(ranks, coordinate) for coordinate in range(ranks)]
        stops = sorted(self.r.randrange(whole + 1) for _ in range(ranks - 1))
        ranges = list(itertools.pairwise([0, *stops, whole]))
        if way != "list":
            return [slice(a, b) for a, b in ranges]
        order = self.r.sample(range(whole), whole)
        lists = [order[a:b] for a, b in ranges]
        if self.target and whole:
            lists[-1].append(self.r.randrange(whole))  # a redundant one
        return lists


def wrap(node: Node, number: int, mesh: str) -> Node:
    """The tree with a selection around its ``number``-th node, counted as by `walk`."""
    if number == 0:
        return Select(Product((node,)) if isinstance(node, Select) else node, mesh)
    number -= 1
    children = {Product: "axes", Concat: "segments", Select: "axis"}[type(node)]  # type: ignore[index]
    if isinstance(node, Select):
        axis = wrap(node.axis, number, mesh)
        return replace(node, axis=Product((axis,)) if isinstance(axis, Select) else axis)
    found = list(getattr(node, children))
    for place, child in enumerate(found):
        axis = child[1] if isinstance(node, Concat) else child
        count = sum(1 for _ in walk(axis))
        if number < count:
            new = wrap(axis, number, mesh)
            found[place] = (child[0], new) if isinstance(node, Concat) else new
            return replace(node, **{children: tuple(found)})
        number -= count
    raise AssertionError("no such node")


def side(r: Random, world: World, *, target: bool) -> dict[Any, lk.Spec]:
    """The Specs of one side; together they hold every element of the world."""
    dims = cuts(r, world.chains, short=r.randrange(3) == 0)
    builder = Builder(r, world, dims, target, pad=r.randrange(4) == 0)
    zero = r.randrange(2) == 0
    specs: dict[Any, lk.Spec] = {}
    arranged: dict[Any, tuple[list[Node], list[dict[str, Any]]]] = {}
    for number, shape in enumerate(builder.shapes()):
        kind = repr(shape.concats)
        if kind not in arranged or r.randrange(4) == 0:  # the coordinates of `at` mostly share one layout
            arranged[kind] = builder.select(builder.dimensions(shape))
        nodes, ranks = arranged[kind]
        declared = " ".join(map(str, r.sample(nodes, len(nodes)))) if r.randrange(6) == 0 else None
        for rank, mesh in enumerate(ranks):
            text = " ".join(map(str, nodes))
            spec = lk.Spec(text, of="w", dims=dims, mesh=mesh, at=shape.at, declared=declared)
            specs[number, rank] = spec.replace(padding=paddings(spec, zero and target))
    return specs


def paddings(spec: lk.Spec, zero: bool) -> dict[str, str]:
    """The padding that a Spec must declare, kept or zeroed throughout."""
    how = "zero" if zero else "keep"
    said = {"pad": how} if "pad" in spec.layout.tags else {}
    named = spec.layout.axes | set(spec.at)
    for axis in spec.sizes().axes.values():
        below = {axis.name, *axis.parts} | {part for name in axis.parts for part in spec.sizes()[name].parts}
        if axis.length > axis.size and below & named:
            said[axis.name] = how
    return said


def fits(specs: dict[Any, lk.Spec]) -> bool:
    """Small enough for a test."""
    return len(specs) <= MOST_TENSORS and all(math.prod(spec.shape()) <= MOST_ELEMENTS for spec in specs.values())

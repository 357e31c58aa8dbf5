# SPDX-License-Identifier: Apache-2.0
"""From two sets of Specs to the blocks that carry one into the other, proved on the way.

Every target piece is a box of coordinates. Each source piece of the same identity cuts its intersection out of the
box: one block. What is left at the end has no source and refuses the plan, so coverage comes with the derivation. The
same cut from the other side finds source elements that no target wants, and among sources those that two of them hold.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from .blocks import ZERO_FILL, Block, coalesce
from .combs import Comb, CutsDoNotNestError, add, meet
from .errors import LayoutError, nearest
from .notation import Concat, Count, Name, Node, Product, Select, walk
from .pieces import Group, Piece, gather, pieces
from .spec import Spec

Strides = Mapping[Any, tuple[int, ...]]


@dataclass(frozen=True)
class Side:
    """One side of a plan: its tensors by number, and their pieces by identity."""

    name: str
    keys: list[Any]
    groups: list[Group]
    pieces: dict[Any, list[Piece]]
    padding: list[Piece]

    def key(self, piece: Piece) -> Any:
        """The first tensor that a piece (or what is left of it) lies in."""
        place = piece.place
        for comb in piece.axes.values():
            place = add(place, comb.origin)
        return self.keys[place[0]]


def derive(
    sources: Mapping[Any, Spec],
    targets: Mapping[Any, Spec],
    dims: Mapping[str, Any] | None,
    *,
    unused: str,
    replicas: str,
    strides: tuple[Strides, Strides] = ({}, {}),
    inverse: bool = False,
) -> tuple[list[Block], list[Any], list[Any]]:
    """The blocks of a plan and the keys of its sources and targets by number; see `layout_kernels.compile`.

    ``strides`` are those of tensors that are not contiguous; ``inverse`` reads repeated elements at their first copy.
    """
    first = replicas == "first"
    source = _side("source", sources, dims, strides[0], repeats=False, lists=inverse, ordered=first)
    target = _side("target", targets, dims, strides[1], repeats=True, lists=True, ordered=False)
    _check_sizes(source, target)
    blocks: list[Block] = []
    uncovered: list[Piece] = []
    if not first:
        for offered in source.pieces.values():
            _refuse_overlap(source, offered, "two sources hold it; say replicas='first' if they are replicas")
    for identity, boxes in target.pieces.items():
        offered = source.pieces.get(identity, [])
        for box, near in zip(boxes, _near(boxes, offered), strict=True):
            found, left = _cut_all(target, box, source, near)
            uncovered += left
            blocks += found
    if uncovered:
        _refuse_uncovered(target, uncovered, source)
    if unused == "refuse":
        _refuse_unused(source, target)
    blocks += [_zero(piece) for piece in target.padding if piece.padding == "zero"]
    return coalesce(blocks), source.keys, target.keys


def _side(
    name: str, specs: Mapping[Any, Spec], dims: Any, strides: Strides, *, repeats: bool, lists: bool, ordered: bool
) -> Side:
    groups, keys = gather(specs, dims, strides, ordered=ordered)
    side = Side(name, keys, groups, {}, [])
    for group in groups:
        try:
            _refuse_lists(group, lists)
            once = _first_copies(group, pieces(group, repeats=False))
            found = pieces(group, repeats=True) if repeats else once
        except LayoutError as error:
            raise LayoutError(f"{name} {keys[group.first]!r}: {error}") from error
        for _, alike in _by_identity(once):
            _refuse_overlap(side, alike, "the layout holds it twice")
        for piece in found:
            if piece.padding:
                side.padding.append(piece)
            else:
                side.pieces.setdefault(piece.identity, []).append(piece)
    return side


def _refuse_lists(group: Group, allowed: bool) -> None:
    """A list of positions may repeat itself in a target; in a source the element would be two."""
    for name in group.spec.layout.meshes:
        chosen = group.spec.mesh.get(name)
        if isinstance(chosen, list) and not allowed and len(set(chosen)) < len(chosen):
            raise LayoutError(f"mesh {name!r} lists a position twice: {chosen}; only a target may repeat an element")


def _first_copies(group: Group, found: list[Piece]) -> list[Piece]:
    """An INT above one holds the same element again: where a selection cuts through its copies, the first counts."""
    if not any(isinstance(node, Count) and node.size > 1 for dim in group.spec.layout.dimensions for node in walk(dim)):
        return found
    kept: list[Piece] = []
    for piece in found:
        left = [piece]
        for earlier in kept:
            if not piece.padding and earlier.identity == piece.identity:
                left = [rest for part in left for rest in _cut(part, earlier)[1]]
        kept += left
    return kept


def _by_identity(found: Sequence[Piece]) -> Iterator[tuple[Any, list[Piece]]]:
    alike: dict[Any, list[Piece]] = {}
    for piece in found:
        if not piece.padding:
            alike.setdefault(piece.identity, []).append(piece)
    yield from alike.items()


# -- boxes: pieces by their combs ------------------------------------------------------------------------------------


def _cut(one: Piece, two: Piece) -> tuple[list[tuple[Piece, Piece]], list[Piece]]:
    """Pairs of equal boxes out of two pieces of one identity, and the rest of the first."""
    met = {}
    for axis, comb in one.axes.items():
        try:
            met[axis] = meet(comb, two.axes[axis])
        except CutsDoNotNestError as error:
            raise CutsDoNotNestError(axis, *error.args) from None
        if not met[axis][0]:
            return [], [one]
    rest: list[Piece] = []
    inside: list[dict[str, Comb]] = [dict(one.axes)]
    for axis, (pairs, missed) in met.items():
        rest += [replace(one, axes={**box, axis: comb}) for box in inside for comb in missed]
        inside = [{**box, axis: comb} for box in inside for comb, _ in pairs]
    matched = itertools.product(*(pairs for pairs, _ in met.values()))
    boxes = [
        (dict(zip(met, (a for a, _ in combo), strict=True)), dict(zip(met, (b for _, b in combo), strict=True)))
        for combo in matched
    ]
    return [(replace(one, axes=ours), replace(two, axes=theirs)) for ours, theirs in boxes], rest


def _cut_all(side: Side, box: Piece, other: Side, offered: Sequence[Piece]) -> tuple[list[Block], list[Piece]]:
    """Everything that the offered pieces cut out of a target box, as blocks, and what is left of it."""
    blocks: list[Block] = []
    left = [box]
    for piece in offered:
        if not left:
            break
        remaining: list[Piece] = []
        for part in left:
            pairs, rest = _cut_named(side, part, other, piece)
            blocks += [_block(ours, theirs) for ours, theirs in pairs]
            remaining += rest
        left = remaining
    return blocks, left


def _cut_named(side: Side, one: Piece, other: Side, two: Piece) -> tuple[list[tuple[Piece, Piece]], list[Piece]]:
    try:
        return _cut(one, two)
    except CutsDoNotNestError as error:
        axis, outer, inner = error.args
        raise LayoutError(
            f"{side.name} {side.key(one)!r} and {other.name} {other.key(two)!r} cut axis {axis!r} of "
            f"{one.group.spec.of!r} in ways that do not nest: "
            f"{_cut_of(one, axis)} steps by {outer}, {_cut_of(two, axis)} by {inner}"
        ) from None


def _cut_of(piece: Piece, axis: str) -> str:
    """How a message names a cut: ``'(ib [gate up] is) h' with i = (ib is)``."""
    parts = piece.group.sizes[axis].parts
    return f"{str(piece.group.spec.layout)!r}" + (f" with {axis} = ({' '.join(parts)})" if parts else "")


def _near(boxes: Sequence[Piece], offered: Sequence[Piece]) -> list[list[Piece]]:
    """For every box the offered pieces whose bounds meet its own: a cheap sieve before the exact cut."""
    if not offered or not boxes:
        return [[] for _ in boxes]
    axes = sorted(boxes[0].axes)
    if not axes:
        return [list(offered) for _ in boxes]
    ours, theirs = (
        np.array([[[p.axes[a].start, p.axes[a].last] for a in axes] for p in side]) for side in (boxes, offered)
    )
    hits = [(box[:, 0] <= theirs[:, :, 1]).all(1) & (theirs[:, :, 0] <= box[:, 1]).all(1) for box in ours]
    return [[offered[place] for place in np.flatnonzero(hit).tolist()] for hit in hits]


def _block(target: Piece, source: Piece) -> Block:
    base = source.place + target.place
    digits: list[tuple[int, tuple[int, ...]]] = [(extent, (0, 0, *move)) for extent, move in target.uncounted]
    for axis, comb in target.axes.items():
        other = source.axes[axis]
        base = add(base, other.origin + comb.origin)
        digits += [(a.extent, b.payload + a.payload) for a, b in zip(comb.digits, other.digits, strict=True)]
    return Block(base, tuple(digits))


def _zero(piece: Piece) -> Block:
    return Block((ZERO_FILL, 0, *piece.place), tuple((extent, (0, 0, *move)) for extent, move in piece.uncounted))


# -- refusals --------------------------------------------------------------------------------------------------------


def _refuse_overlap(side: Side, alike: Sequence[Piece], why: str) -> None:
    near = _near(alike, alike)
    numbers = {id(piece): number for number, piece in enumerate(alike)}
    for number, (piece, others) in enumerate(zip(alike, near, strict=True)):
        for other in others:
            if numbers[id(other)] > number:
                pairs, _ = _cut_named(side, piece, side, other)
                if pairs:
                    first, second = side.key(pairs[0][0]), side.key(pairs[0][1])
                    both = f"{first!r}" if first == second else f"{first!r} and {second!r}"
                    raise LayoutError(f"{side.name} {both}: {_where(pairs[0][0])}: {why}")


def _refuse_unused(source: Side, target: Side) -> None:
    for identity, boxes in source.pieces.items():
        wanted = target.pieces.get(identity, [])
        for box, near in zip(boxes, _near(boxes, wanted), strict=True):
            _, left = _cut_all(source, box, target, near)
            if left:
                hint = _explain_missing(left[0], target)
                raise LayoutError(
                    f"source {source.key(left[0])!r}: {_where(left[0])}: no target wants it; "
                    f"say unused='allow' if that is meant{hint}"
                )


def _refuse_uncovered(target: Side, left: Sequence[Piece], source: Side) -> NoReturn:
    others = sorted({repr(target.key(piece)) for piece in left} - {repr(target.key(left[0]))})
    raise LayoutError(
        f"target {target.key(left[0])!r}: {_where(left[0])}: no source holds it, and it is not declared as padding"
        f"{_explain_missing(left[0], source)}" + (f"; as with {_some(others, ', ', 6)}" if others else "")
    )


def _where(piece: Piece) -> str:
    """The logical tensor, tags and coordinates of a piece, as a message names them."""
    tags = f"[{' '.join(sorted(piece.tags))}] " if piece.tags else ""
    ranges = []
    for axis, comb in sorted(piece.axes.items()):
        step = f" in steps of {comb.digits[-1].weight}" if comb.digits and comb.digits[-1].weight > 1 else ""
        ranges.append(f"{axis} {comb.start}" if comb.start == comb.last else f"{axis} {comb.start}..{comb.last}{step}")
    return f"{piece.group.spec.of or 'the tensor'!r} {tags}{', '.join(ranges) or 'its one element'}"


def _explain_missing(piece: Piece, other: Side) -> str:
    """What the other side has that comes nearest: the same logical tensor, tags, axes."""
    of = piece.group.spec.of
    names = {identity[0] for identity in other.pieces}
    if of not in names:
        return f"; no {other.name} belongs to {of!r}{nearest(of, names)}"
    tagged = [axes for name, tags, axes in other.pieces if name == of and tags == piece.tags]
    if not tagged:
        known = sorted({f"[{' '.join(sorted(tags))}]" for name, tags, _ in other.pieces if name == of})
        return f"; the {other.name}s of {of!r} have the tags {_some(known, ', ')}"
    if frozenset(piece.axes) not in tagged:
        known = sorted({" ".join(sorted(axes)) for axes in tagged})
        return f"; the {other.name}s of {of!r} with these tags have other axes: {_some(known, '; ')}"
    found = [_where(held) for held in other.pieces[piece.identity]]
    return f"; the {other.name}s hold {_some(found, ' and ')}"


def _some(words: Sequence[str], between: str, most: int = 3) -> str:
    return between.join(words[:most]) + (f"{between}{len(words) - most} more" if len(words) > most else "")


def _check_sizes(*sides: Side) -> None:
    """One axis has one size among all Specs of one logical tensor, also where a tensor is empty."""
    seen: dict[tuple[str, str], tuple[int, str]] = {}
    for side in sides:
        for group in side.groups:
            where = f"{side.name} {side.keys[group.first]!r}"
            for axis in _counted(group):
                size = group.sizes[axis].size
                known, other = seen.setdefault((group.spec.of, axis), (size, where))
                if known != size:
                    raise LayoutError(
                        f"axis {axis!r} of {group.spec.of!r} has size {size} in {where} but {known} in {other}"
                    )


def _named(node: Node, padding: Mapping[str, str]) -> set[str]:
    """The axes of a part of a layout, without those of segments that are padding."""
    match node:
        case Name(name):
            return {name}
        case Product(axes):
            return set().union(*(_named(axis, padding) for axis in axes))
        case Concat(segments):
            return set().union(*(_named(axis, padding) for tag, axis in segments if tag not in padding))
        case Select(axis, _):
            return _named(axis, padding)
        case _:
            return set()


def _counted(group: Group) -> set[str]:
    """The axes that a group's coordinates count on, padding apart: parts that are all there count as their whole."""
    names = set(group.spec.at)
    for dimension in group.spec.layout.dimensions:
        names |= _named(dimension, group.spec.padding)
    complete = True
    while complete:
        complete = False
        for axis in group.sizes.axes.values():
            if axis.parts and names.issuperset(axis.parts):
                names = names - set(axis.parts) | {axis.name}
                complete = True
    return names

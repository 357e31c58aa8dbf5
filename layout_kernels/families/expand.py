# SPDX-License-Identifier: Apache-2.0
"""From rows to Specs: a block of the table, at one layer of one model, as one rank of one system holds it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch

from ..dims import Frozen
from ..errors import LayoutError
from ..spec import Selection, Spec, dtype_named
from .expression import evaluate
from .quantities import Quantities
from .selection import flat, kv_heads, positions
from .table import Block, Cell, Row, choose

PADDING_TAGS = frozenset({"pad"})
_WORD = re.compile(r"\{(\w+)\}")
_CUT = re.compile(r"((?P<size>.+) of )?\((?P<parts>[\w ]+)\)")


@dataclass(frozen=True)
class View:
    """How one rank of one system reads the tables: columns, quantities, selections, and what is said of padding."""

    path: tuple[str, ...]
    quantities: Quantities
    mesh: Mapping[str, Selection]
    padding: str = "keep"
    dtype: torch.dtype | None = None
    shard: str | None = None  # how fully sharded data parallel cuts tensors
    slots: Mapping[int, list[int]] | None = None  # layer -> the experts that this rank holds, in order
    _shared: dict[Any, Any] = field(default_factory=dict)

    def of(self, quantities: Quantities) -> View:
        """The same view, of one layer."""
        return replace(self, quantities=quantities)

    def selection(self, mesh: str) -> Selection:
        """What the rank holds along a mesh axis."""
        if mesh == "kv":
            tp = self.mesh["tp"]
            assert isinstance(tp, tuple)
            return kv_heads(tp, self.quantities("kv_heads"))
        if mesh == "ep" and self.slots is not None:
            return list(choose("slots: layer", self.quantities("l"), self.slots))
        return self.mesh[mesh]

    def share(self, dims: dict[str, Any]) -> Frozen[Any]:
        """Equal dims as one object: plans group Specs by it."""
        key = tuple(sorted(dims.items(), key=lambda item: item[0]))
        found: Frozen[Any] = self._shared.setdefault(key, Frozen(dims))
        return found


def expand(block: Block, prefix: str, view: View) -> Iterator[tuple[str, Spec]]:
    """Names and Specs of a block whose names begin with ``prefix``; nothing where the layer has no such block."""
    quantities = view.quantities
    if not evaluate(block.where, quantities):
        return
    for row in block.rows:
        if not evaluate(row.when, quantities):
            continue
        for cell in _cells(row, view.path):
            if evaluate(cell.condition, quantities):
                try:
                    yield from _tensors(block, row, cell, prefix, view)
                except LayoutError as error:
                    raise LayoutError(f"{row.of} as {cell.name!r}: {error}") from None


def _cells(row: Row, path: tuple[str, ...]) -> tuple[Cell, ...]:
    try:
        return row.cells(path)
    except LayoutError as error:
        raise LayoutError(f"{row.of}: {error}") from None


def _tensors(block: Block, row: Row, cell: Cell, prefix: str, view: View) -> Iterator[tuple[str, Spec]]:
    """One tensor, or one for each expert that the rank holds."""
    quantities = view.quantities
    at = {"l": quantities("l")} if row.of.startswith(("layers.", "mtp.")) else {}
    name = cell.name[1:] if cell.name.startswith("/") else prefix + cell.name
    axes = set(cell.layout.axes) | set(at) | ({"e"} if cell.per_expert else set())
    expressions = {**block.axes(view.path, row), "l": "all_layers"}
    spec = _sharded(_spec(row, cell, view.share(_dims(axes, expressions, quantities)), at, view), view)
    if not cell.per_expert:
        yield named(name, quantities), spec
        return
    template = named(name, quantities, keep=("e", "j"))
    for j, e in enumerate(positions(view.selection("ep"), quantities("experts"), "experts")):
        yield template.format(e=e, j=j), spec.replace(at={**at, "e": e})


def _spec(row: Row, cell: Cell, dims: Frozen[Any], at: Mapping[str, int], view: View) -> Spec:
    used = cell.layout.meshes | (cell.declared.meshes if cell.declared else frozenset())
    padded = PADDING_TAGS & cell.layout.tags
    short = {axis for axis, size in dims.items() if isinstance(size, tuple) and isinstance(size[0], int)}
    return Spec(
        cell.layout,
        of=named(row.of, view.quantities),
        dims=dims,
        mesh={name: view.selection(name) for name in used},
        at=at,
        declared=cell.declared,
        dtype=view.dtype if cell.dtype is None else dtype_named(cell.dtype),
        padding=dict.fromkeys(sorted(padded | short), view.padding),
    )


def _sharded(spec: Spec, view: View) -> Spec:
    """The piece that fully sharded data parallel leaves of a tensor: some of its rows, or a flat slice."""
    fsdp = view.mesh.get("fsdp", (1, 0))
    if view.shard is None or fsdp == (1, 0):
        return spec
    assert isinstance(fsdp, tuple)
    held = flat(view.shard, fsdp, spec.shape())
    first, *others = map(str, spec.layout.dimensions)
    layout = " ".join([f"({first})/fsdp", *others]) if view.shard == "rows" else f"({spec.layout})/fsdp"
    return spec.replace(layout=layout, mesh={**spec.mesh, "fsdp": held})


def _dims(axes: set[str], expressions: Mapping[str, str], quantities: Quantities) -> dict[str, Any]:
    """Sizes of the axes named, with the axes that they are cut into or are parts of."""
    dims: dict[str, Any] = {}
    wanted = sorted(axes)
    while wanted:
        axis = wanted.pop()
        if axis in dims:
            continue
        if axis not in expressions:
            raise LayoutError(f"axis {axis!r} has no size in its block: there are {sorted(expressions)}")
        size, parts = _cut(expressions[axis])
        number = None if size is None else _size(axis, size, quantities)
        dims[axis] = number if not parts else parts if number is None else (number, *parts)
        wanted += [*parts, *(whole for whole, text in expressions.items() if axis in _cut(text)[1])]
    return dims


def _size(axis: str, text: str, quantities: Quantities) -> int:
    size = evaluate(text, quantities)
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise LayoutError(f"axis {axis!r} has size {size!r}, out of {text!r}: a number was wanted")
    return size


@cache
def _cut(text: str) -> tuple[str | None, tuple[str, ...]]:
    """``"hidden"`` -> ("hidden", ()); ``"(t il)"`` -> (None, parts); ``"width of (i1 i0)"`` -> ("width", parts)."""
    found = _CUT.fullmatch(text)
    return (found["size"], tuple(found["parts"].split())) if found else (text, ())


def named(pattern: str, quantities: Quantities, keep: tuple[str, ...] = ()) -> str:
    """The name with its words filled in, and those in the words too; those to keep stay as they are."""
    return _WORD.sub(
        lambda word: word[0] if word[1] in keep else named(str(quantities(word[1])), quantities, keep), pattern
    )

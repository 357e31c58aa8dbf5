# SPDX-License-Identifier: Apache-2.0
"""What the tables are made of: a row a logical tensor, a column a system, rows grouped in blocks.

A cell lists the physical tensors that one system makes of the logical tensor, one a line::

    NAME = LAYOUT [as DECLARED] [in DTYPE] [if CONDITION]

NAME is relative to where the block stands (a leading ``/`` makes it absolute). In it, ``{l}`` is the layer's number in
the model and ``{n}`` its number on this rank, ``{e}`` is an expert's number in the model and ``{j}`` its number on this
rank; any other word in braces is a quantity of the model. ``as`` gives the layout that ``.shape`` reports where it does
not describe the bytes, ``in`` the dtype where the system fixes it. An empty cell says that the system has no such
tensor; ``refused: REASON`` that it has one that the tables do not describe; a cell that is missing is an error.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ..errors import LayoutError, nearest
from ..notation import Layout, parse

_CELL = re.compile(
    r"(?P<name>\S+) = (?P<layout>.+?)( as (?P<declared>.+?))?( in (?P<dtype>\w+))?( if (?P<condition>.+))?"
)
_PER_EXPERT = re.compile(r"\{[ej]\}")
V = TypeVar("V")
NO_CUTS: Mapping[str, str] = {}
REFUSED = "refused: "


@dataclass(frozen=True)
class Cell:
    """One physical tensor of one system."""

    name: str
    layout: Layout
    declared: Layout | None = None
    dtype: str | None = None
    condition: str = "True"

    @property
    def per_expert(self) -> bool:
        """Whether there is one such tensor an expert."""
        return bool(_PER_EXPERT.search(self.name))


@dataclass(frozen=True)
class Row:
    """One logical tensor, with what each column makes of it; ``cuts`` as in `Block`, of this row alone."""

    of: str
    when: str
    columns: Mapping[str, tuple[Cell, ...]] = field(hash=False)
    cuts: Mapping[str, Mapping[str, str]] = field(default_factory=dict, hash=False)
    refused: Mapping[str, str] = field(default_factory=dict, hash=False)

    def cells(self, path: Sequence[str]) -> tuple[Cell, ...]:
        """The cells of the first column of ``path`` that the row has."""
        for column in path:
            if column in self.columns:
                return self.columns[column]
            if column in self.refused:
                raise LayoutError(f"{self.refused[column]} (column {column!r})")
        raise LayoutError(f"row {self.of!r} of the tables has no column for {' or '.join(map(repr, path))}")


@dataclass(frozen=True)
class Block:
    """Rows that belong together, the sizes of their axes, and the layers that have them.

    ``sizes`` gives an expression for each axis; ``cuts`` those that hold in one column only, where an axis may also be
    cut: ``"(i1 i0)"`` into others, ``"width of (i1 i0)"`` short, at the front of others.
    """

    name: str
    where: str
    sizes: Mapping[str, str] = field(hash=False)
    cuts: Mapping[str, Mapping[str, str]] = field(hash=False)
    rows: tuple[Row, ...]

    def axes(self, path: Sequence[str], of: Row) -> dict[str, str]:
        """The expressions of all axes of a row in the columns of ``path``."""
        known = {**self.cuts, **of.cuts}
        return {**self.sizes, **next((known[column] for column in path if column in known), NO_CUTS)}


def row(of: str, *, when: str = "True", **columns: str) -> Row:
    """A row of a table: the logical tensor, the condition under which models have it, a text for each column."""
    refused = {column: text.removeprefix(REFUSED) for column, text in columns.items() if text.startswith(REFUSED)}
    cells = {column: tuple(map(_cell, _lines(text))) for column, text in columns.items() if column not in refused}
    return Row(of, when, cells, refused=refused)


def cut(line: Row, cuts: Mapping[str, Mapping[str, str]]) -> Row:
    """The row with cuts of its own: column -> the sizes of its axes there."""
    return replace(line, cuts=cuts)


def block(
    name: str,
    *rows: Row,
    sizes: Mapping[str, str],
    where: str = "True",
    cuts: Mapping[str, Mapping[str, str]] | None = None,
) -> Block:
    """A block of rows; ``where`` says which layers have it."""
    return Block(name, where, sizes, cuts or {}, rows)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _cell(line: str) -> Cell:
    found = _CELL.fullmatch(line)
    if found is None:
        raise LayoutError(f"{line!r} is no cell: 'NAME = LAYOUT [as DECLARED] [in DTYPE] [if CONDITION]' was wanted")
    declared = found["declared"]
    return Cell(
        found["name"],
        parse(found["layout"]),
        None if declared is None else parse(declared),
        found["dtype"],
        found["condition"] or "True",
    )


def choose(what: str, value: object, known: Mapping[Any, V]) -> V:
    """``known[value]``, or an error that lists what there is."""
    if isinstance(value, Hashable) and value in known:
        return known[value]
    there = f"there are {', '.join(map(repr, known))}{nearest(value, known)}"
    raise LayoutError(f"{what} {value!r} is not known: {there}")

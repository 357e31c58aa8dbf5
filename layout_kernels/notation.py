# SPDX-License-Identifier: Apache-2.0
"""The notation: one line of text describes a physical tensor.

    layout  := axis*                      one axis for each tensor dimension, outermost first
    axis    := atom ["/" mesh]            "/m": only a selection of the axis's positions is held
    atom    := NAME | INT | "(" axis+ ")" | "[" segment+ "]"
    segment := TAG [":" axis]             concatenation; a bare TAG is one position wide

This file knows text and trees, and no sizes: what a tree means is in ``pieces.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NoReturn, TypeVar

from .errors import LayoutError

T = TypeVar("T")
LONGEST = 18  # digits of a number
DEEPEST = 64  # nesting; a text may come from another process, which must not exhaust the stack

_TOKEN = re.compile(r"\s*(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<number>[0-9]+)|(?P<mark>[()\[\]:/]))")


@dataclass(frozen=True)
class Name:
    """An elementary axis."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Count:
    """A number: a dimension of one, or (in targets) the same element that many times."""

    size: int

    def __str__(self) -> str:
        return str(self.size)


@dataclass(frozen=True)
class Product:
    """Axes run through row-major, the last one fastest."""

    axes: tuple[Node, ...]

    def __str__(self) -> str:
        return f"({' '.join(map(str, self.axes))})"


@dataclass(frozen=True)
class Concat:
    """Tagged segments, one after the other."""

    segments: tuple[tuple[str, Node], ...]

    def __str__(self) -> str:
        return f"[{' '.join(tag if axis == Count(1) else f'{tag}:{axis}' for tag, axis in self.segments)}]"


@dataclass(frozen=True)
class Select:
    """A selection of an axis's positions, given by a mesh entry."""

    axis: Node
    mesh: str

    def __str__(self) -> str:
        return f"{self.axis}/{self.mesh}"


Node = Name | Count | Product | Concat | Select


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it."""
    yield node
    match node:
        case Product(axes):
            below: tuple[Node, ...] = axes
        case Concat(segments):
            below = tuple(axis for _, axis in segments)
        case Select(axis, _):
            below = (axis,)
        case _:
            below = ()
    for child in below:
        yield from walk(child)


@dataclass(frozen=True)
class Layout:
    """A parsed layout; equal by what it says, not by its white space.

    Parameters
    ----------
    text : str
        One line of the notation, for example ``"e/ep h ([gate up] i/etp)"``.

    Raises
    ------
    LayoutError
        Where the text does not follow the grammar; the message shows the position.

    Examples
    --------
    >>> layout = Layout("(g [q:r k v] d)/tp h")
    >>> str(layout), sorted(layout.axes), sorted(layout.tags), sorted(layout.meshes)
    ('(g [q:r k v] d)/tp h', ['d', 'g', 'h', 'r'], ['k', 'q', 'v'], ['tp'])
    """

    text: str = field(compare=False)
    dimensions: tuple[Node, ...] = field(init=False, repr=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise LayoutError(f"a layout is a text, not {type(self.text).__name__}: {self.text!r}")
        object.__setattr__(self, "dimensions", _Parser(self.text).layout())
        # Plans group tens of thousands of Specs by their layout: the tree is hashed once.
        object.__setattr__(self, "_hash", hash(self.dimensions))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return self.text

    @property
    def canonical(self) -> str:
        """The text with one space between axes; equal layouts have equal canonical texts."""
        return " ".join(map(str, self.dimensions))

    @property
    def axes(self) -> frozenset[str]:
        """The elementary axes that the layout names."""
        return frozenset(node.name for node in self._nodes() if isinstance(node, Name))

    @property
    def tags(self) -> frozenset[str]:
        """The tags of its segments, without the empty tag ``_``."""
        return frozenset(t for node in self._nodes() if isinstance(node, Concat) for t, _ in node.segments) - {"_"}

    @property
    def meshes(self) -> frozenset[str]:
        """The mesh axes that select within it."""
        return frozenset(node.mesh for node in self._nodes() if isinstance(node, Select))

    def _nodes(self) -> Iterator[Node]:
        for dimension in self.dimensions:
            yield from walk(dimension)


class _Parser:
    """Recursive descent; one method a rule of the grammar."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self._scan())
        self.at = 0
        self.depth = 0

    def _scan(self) -> Iterator[tuple[str, str, int]]:
        position, end = 0, len(self.text.rstrip())
        while position < end:
            found = _TOKEN.match(self.text, position)
            if found is None:
                start = position + len(self.text[position:]) - len(self.text[position:].lstrip())
                self.refuse(f"{self.text[start]!r} is no part of the notation", start)
            kind = str(found.lastgroup)
            yield kind, found.group(kind), found.start(kind)
            position = found.end()
        yield "end", "", len(self.text)

    def refuse(self, why: str, position: int) -> NoReturn:
        raise LayoutError(
            f"layout does not parse: {why}, at position {position}\n    {self.text}\n    {' ' * position}^"
        )

    def peek(self) -> tuple[str, str, int]:
        return self.tokens[self.at]

    def take(self) -> tuple[str, str, int]:
        token = self.tokens[self.at]
        self.at += 1
        return token

    def layout(self) -> tuple[Node, ...]:
        axes = []
        while self.peek()[0] != "end":
            axes.append(self.axis())
        return tuple(axes)

    def axis(self) -> Node:
        node = self.atom()
        if self.peek()[1] != "/":
            return node
        self.take()
        kind, mesh, position = self.take()
        if kind != "name":
            self.refuse(f"a mesh name must follow '/', not {mesh or 'the end'!r}", position)
        if self.peek()[1] == "/":
            self.refuse("two selections of one axis; write (x/a)/b to select inside a selection", self.peek()[2])
        return Select(node, mesh)

    def atom(self) -> Node:
        kind, word, position = self.take()
        if kind == "name":
            if word == "_":
                self.refuse("'_' is reserved for a segment that marks nothing", position)
            return Name(word)
        if kind == "number":
            if len(word) > LONGEST:
                self.refuse(f"a number of more than {LONGEST} digits", position)
            if int(word) < 1:
                self.refuse("a number must be at least 1", position)
            return Count(int(word))
        if word == "(":
            return Product(tuple(self._until(")", self.axis, position)))
        if word == "[":
            return Concat(tuple(self._until("]", self.segment, position)))
        self.refuse(f"an axis must begin here, not {word or 'the end'!r}", position)

    def _until(self, close: str, rule: Callable[[], T], opened: int) -> list[T]:
        items = []
        self.depth += 1
        if self.depth > DEEPEST:
            self.refuse(f"nested deeper than {DEEPEST}", opened)
        while self.peek()[1] != close:
            if self.peek()[0] == "end":
                self.refuse(f"{self.text[opened]!r} is never closed", opened)
            items.append(rule())
        if not items:
            self.refuse(f"'{self.text[opened]}{close}' is empty", opened)
        self.take()
        self.depth -= 1
        return items

    def segment(self) -> tuple[str, Node]:
        kind, tag, position = self.take()
        if kind != "name":
            self.refuse(f"a segment begins with its tag, not {tag or 'the end'!r}", position)
        if self.peek()[1] != ":":
            return tag, Count(1)
        self.take()
        return tag, self.axis()


@lru_cache(maxsize=4096)
def parse(text: str) -> Layout:
    """The layout of a text; equal texts share one tree."""
    return Layout(text)

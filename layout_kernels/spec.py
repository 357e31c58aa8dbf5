# SPDX-License-Identifier: Apache-2.0
"""A Spec says what one physical tensor holds: layout, sizes, selections, and the logical tensor it belongs to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import torch

from .dims import Dims, Frozen, resolve
from .errors import LayoutError, nearest
from .notation import Concat, Count, Layout, Name, Node, Product, Select, parse

Selection = tuple[int, int] | slice | list[int]
PADDINGS = ("keep", "zero")
FIELDS = ("layout", "of", "dims", "mesh", "at", "declared", "dtype", "padding")


class Spec:
    """One physical tensor, described.

    Parameters
    ----------
    layout : str or Layout
        What the elements are, in index order (or the bytes, where ``declared`` is given).
    of : str
        The logical tensor that it belongs to; it names the widest fusion that any system makes of it.
    dims : mapping, optional
        Sizes: ``{"h": 2048, "i": ("i1", "i0"), "w": (96, "w1", "w0")}``; complete, or absent and given to `compile`.
    mesh : mapping, optional
        What each ``/name`` of the layout holds: ``(size, coordinate)``, a ``slice`` or a list of positions.
    at : mapping, optional
        Coordinates of axes that the layout does not have: ``{"l": 7, "e": 3}``.
    declared : str or Layout, optional
        The layout that ``.shape`` reports where it does not describe the bytes.
    dtype : torch.dtype, optional
        On a target: a dtype that differs from the source's is then a declared cast, rounded once.
    padding : mapping, optional
        ``{tag or short axis: "keep" | "zero"}``; a short axis keeps if nothing is said.

    Raises
    ------
    LayoutError
        Where a value is not of the form above.
    """

    __slots__ = ("_key", "at", "declared", "dims", "dtype", "layout", "mesh", "of", "padding")

    layout: Layout
    of: str
    dims: Frozen[Any] | None
    mesh: Frozen[Selection]
    at: Frozen[int]
    declared: Layout | None
    dtype: torch.dtype | None
    padding: Frozen[str]
    _key: tuple[object, ...] | None

    def __init__(
        self,
        layout: str | Layout,
        *,
        of: str = "",
        dims: Mapping[str, Any] | None = None,
        mesh: Mapping[str, Selection] | None = None,
        at: Mapping[str, int] | None = None,
        declared: str | Layout | None = None,
        dtype: torch.dtype | None = None,
        padding: Mapping[str, str] | None = None,
    ) -> None:
        put = object.__setattr__
        if not isinstance(of, str):
            raise LayoutError(f"of is {of!r}: the name of a logical tensor was wanted")
        if dtype is not None and not isinstance(dtype, torch.dtype):
            raise LayoutError(f"dtype is {dtype!r}: a torch.dtype was wanted")
        put(self, "layout", _layout(layout))
        put(self, "declared", None if declared is None else _layout(declared))
        put(self, "of", of)
        for name, given in (("dims", dims), ("mesh", mesh), ("at", at), ("padding", padding)):
            if given is not None and not isinstance(given, Mapping):
                raise LayoutError(f"{name} is {given!r}: a mapping of names was wanted")
        put(self, "dims", None if dims is None else _frozen(dims))
        self.sizes()
        put(self, "mesh", _checked(mesh, _check_selection))
        put(self, "at", _checked(at, _check_coordinate))
        put(self, "padding", _checked(padding, _check_padding))
        put(self, "dtype", dtype)
        put(self, "_key", None)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Spec never changes; use .replace({name}=…)")

    def replace(self, **fields: Any) -> Spec:
        """The same Spec with some fields changed."""
        return Spec(**{**{name: getattr(self, name) for name in FIELDS}, **fields})

    def shape(self, dims: Mapping[str, Any] | None = None) -> tuple[int, ...]:
        """What ``.shape`` of the tensor must be; ``dims`` serve a Spec that carries none.

        Raises
        ------
        LayoutError
            Where an axis has no size, a selection does not divide, or the declared shape holds another number of
            elements than the layout.
        """
        sizes = self.sizes(dims)
        actual = tuple(length(node, sizes, self.mesh) for node in self.layout.dimensions)
        if self.declared is None:
            return actual
        reported = tuple(length(node, sizes, self.mesh) for node in self.declared.dimensions)
        if math.prod(reported) != math.prod(actual):
            raise LayoutError(
                f"declared {str(self.declared)!r} has shape {reported}, {math.prod(reported)} elements, but layout "
                f"{str(self.layout)!r} has {actual}, {math.prod(actual)} elements"
            )
        return reported

    def sizes(self, dims: Mapping[str, Any] | None = None) -> Dims:
        """The resolved axes: the Spec's own dims, or else those given."""
        if self.dims is not None:
            return resolve(self.dims)
        return resolve(_frozen(dims or {}))

    def pattern(self) -> tuple[object, ...]:
        """Everything but the coordinates in ``at``: Specs of one pattern are planned together.

        Mesh entries that the layout does not use are left out, so that replicas have one pattern.
        """
        if self._key is None:
            used = self.layout.meshes | (self.declared.meshes if self.declared else frozenset())
            mesh = tuple((name, repr(self.mesh[name])) for name in sorted(used) if name in self.mesh)
            key = (
                self.layout,
                self.of,
                self.dims,
                mesh,
                tuple(sorted(self.at)),
                self.declared,
                self.dtype,
                self.padding,
            )
            object.__setattr__(self, "_key", key)
        assert self._key is not None
        return self._key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and self.at == other.at and self.pattern() == other.pattern()

    def __hash__(self) -> int:
        return hash((self.pattern(), self.at))

    def __reduce__(self) -> tuple[Any, ...]:
        return Spec.from_json, (self.to_json(),)

    def __repr__(self) -> str:
        said = [f"{name}={_plain(getattr(self, name))!r}" for name in FIELDS[1:] if getattr(self, name)]
        return f"Spec({', '.join([repr(str(self.layout)), *said])})"

    def to_json(self) -> dict[str, Any]:
        """Plain data for files and the wire; `from_json` reads it back."""
        return {
            "layout": str(self.layout),
            "of": self.of,
            "dims": None
            if self.dims is None
            else {k: list(v) if isinstance(v, tuple) else v for k, v in self.dims.items()},
            "mesh": {name: _selection_to_json(value) for name, value in self.mesh.items()},
            "at": dict(self.at),
            "declared": None if self.declared is None else str(self.declared),
            "dtype": None if self.dtype is None else str(self.dtype).removeprefix("torch."),
            "padding": dict(self.padding),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Spec:
        """The Spec that `to_json` wrote.

        Raises
        ------
        LayoutError
            Where a field is missing, unknown or malformed; the data may come from another process.
        """
        if not isinstance(data, Mapping) or not isinstance(data.get("layout"), str):
            raise LayoutError(f"a Spec in JSON is an object with a 'layout', not {str(data)[:80]!r}")
        for name in data:
            if name not in FIELDS:
                raise LayoutError(
                    f"a Spec in JSON has no field {name!r}: there are {', '.join(FIELDS)}{nearest(name, FIELDS)}"
                )
        for name in ("dims", "mesh", "at", "padding"):
            if not isinstance(data.get(name) or {}, dict):
                raise LayoutError(f"{name} of a Spec in JSON is {str(data[name])[:80]!r}: an object was wanted")
        dims = data.get("dims")
        dtype = data.get("dtype")
        return cls(
            data["layout"],
            of=data.get("of") or "",
            dims=None if dims is None else {k: tuple(v) if isinstance(v, list) else v for k, v in dims.items()},
            mesh={name: _selection_from_json(name, value) for name, value in (data.get("mesh") or {}).items()},
            at=data.get("at") or {},
            declared=data.get("declared"),
            dtype=None if dtype is None else dtype_named(dtype),
            padding=data.get("padding") or {},
        )


def length(node: Node, sizes: Dims, mesh: Mapping[str, Selection]) -> int:
    """How many positions a part of a layout has in memory."""
    match node:
        case Name(name):
            return sizes[name].length
        case Count(size):
            return size
        case Product(axes):
            return math.prod(length(axis, sizes, mesh) for axis in axes)
        case Concat(segments):
            return sum(length(axis, sizes, mesh) for _, axis in segments)
        case Select(axis, name):
            return sum(stop - start for start, stop in selected(node, length(axis, sizes, mesh), mesh))


def selected(node: Select, whole: int, mesh: Mapping[str, Selection]) -> list[tuple[int, int]]:
    """The ranges of positions that a selection holds, in order, out of ``whole`` positions."""
    if node.mesh not in mesh:
        raise LayoutError(f"mesh {node.mesh!r} of {str(node)!r} is not given: the Spec's mesh names {sorted(mesh)}")
    chosen = mesh[node.mesh]
    if isinstance(chosen, slice):
        if chosen.stop > whole:
            raise LayoutError(f"{str(node)!r} holds positions {chosen.start}:{chosen.stop} of only {whole}")
        return [(chosen.start, chosen.stop)]
    if isinstance(chosen, list):
        for position in chosen:
            if position >= whole:
                raise LayoutError(f"{str(node)!r} holds position {position} of only {whole}")
        return _ranges(chosen)
    size, coordinate = chosen
    if whole % size:
        raise LayoutError(f"{str(node)!r}: {whole} positions do not divide into {size} equal chunks")
    return [(coordinate * (whole // size), (coordinate + 1) * (whole // size))]


def _ranges(positions: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending neighbours joined: ``[4, 5, 6, 1]`` -> ``[(4, 7), (1, 2)]``."""
    ranges: list[tuple[int, int]] = []
    for position in positions:
        if ranges and ranges[-1][1] == position:
            ranges[-1] = (ranges[-1][0], position + 1)
        else:
            ranges.append((position, position + 1))
    return ranges


def dtype_named(name: object) -> torch.dtype:
    """``"bfloat16"`` -> ``torch.bfloat16``."""
    dtype = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(dtype, torch.dtype):
        raise LayoutError(f"{name!r} is no dtype of torch")
    return dtype


def _layout(text: object) -> Layout:
    if isinstance(text, Layout):
        return text
    if not isinstance(text, str):
        raise LayoutError(f"a layout is a text, not {type(text).__name__}: {text!r}")
    return parse(text)


def _frozen(items: Mapping[str, Any]) -> Frozen[Any]:
    return (
        items
        if isinstance(items, Frozen)
        else Frozen({k: tuple(v) if isinstance(v, list) else v for k, v in items.items()})
    )


_EMPTY: Frozen[Any] = Frozen({})


def _checked(items: Mapping[str, Any] | None, check: Any) -> Frozen[Any]:
    if not items:
        return _EMPTY
    if isinstance(items, Frozen):
        return items
    for name, value in items.items():
        check(name, value)
    return Frozen({name: list(value) if isinstance(value, list) else value for name, value in items.items()})


def _whole_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _check_selection(name: str, value: object) -> None:
    match value:
        case (size, coordinate) if isinstance(value, tuple):
            fits = _whole_number(size) and _whole_number(coordinate) and coordinate < size
        case slice(start=start, stop=stop, step=None):
            fits = _whole_number(start) and _whole_number(stop) and start <= stop
        case list():
            fits = all(map(_whole_number, value))
        case _:
            fits = False
    if not fits:
        raise LayoutError(
            f"mesh {name!r} is {value!r}: (size, coordinate) with coordinate < size, slice(start, stop) with "
            "0 <= start <= stop, or a list of positions was wanted"
        )


def _check_coordinate(name: str, value: object) -> None:
    if not _whole_number(value):
        raise LayoutError(f"at {name!r} is {value!r}: a coordinate of at least 0 was wanted")


def _check_padding(name: str, value: object) -> None:
    if value not in PADDINGS:
        raise LayoutError(f"padding {name!r} is {value!r}: 'keep' or 'zero' was wanted")


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Layout) else value


def _selection_to_json(value: Selection) -> object:
    if isinstance(value, slice):
        return {"slice": [value.start, value.stop]}
    return {"positions": list(value)} if isinstance(value, list) else list(value)


def _selection_from_json(name: str, value: object) -> Selection:
    match value:
        case [int(size), int(coordinate)]:
            return size, coordinate
        case {"slice": [int(start), int(stop)], **rest} if not rest:
            return slice(start, stop)
        case {"positions": list(positions), **rest} if not rest:
            return positions
    raise LayoutError(
        f"mesh {name!r} is {value!r}: [size, coordinate], {{'slice': […]}} or {{'positions': […]}} was wanted"
    )

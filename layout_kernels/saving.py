# SPDX-License-Identifier: Apache-2.0
"""Plans as files: a line of text, then the Specs as JSON and the table's arrays in one .npz archive without pickle."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import LayoutError
from .spec import Spec
from .table import Table

if TYPE_CHECKING:
    from .plan import CopyPlan

FORMAT = "layout-kernels plan 1"
COLUMNS = ("shape", "source", "target", "source_offset", "target_offset")


def made_from(plan: CopyPlan, *, ordered: bool) -> dict[str, Any]:
    """What a plan was made from, as plain data: keys, Specs (each pattern once) and choices.

    The order of a mapping means something only where the first of several replicas is read; elsewhere, without
    ``ordered``, equal mappings give equal data.
    """
    return {
        "sources": _sides(plan.sources, ordered or plan.replicas == "first"),
        "targets": _sides(plan.targets, ordered),
        "unused": plan.unused,
        "replicas": plan.replicas,
        "inverted": plan.inverted,
        "strides": [_strides(plan.source_keys, plan.strides[0]), _strides(plan.target_keys, plan.strides[1])],
    }


def _strides(keys: tuple[Any, ...], strides: Mapping[Any, tuple[int, ...]]) -> list[Any]:
    return [[_to_json(key), list(strides[key])] for key in keys if key in strides]


def _sides(specs: dict[Any, Spec], ordered: bool) -> dict[str, Any]:
    """Tens of thousands of Specs share a few patterns: each is written once, with the coordinates beside the keys."""
    patterns: dict[Any, int] = {}
    texts: list[dict[str, Any]] = []
    rows = []
    for key in specs if ordered else sorted(specs, key=repr):
        spec = specs[key]
        number = patterns.setdefault(spec.pattern(), len(patterns))
        if number == len(texts):
            texts.append(_canonical(spec))
        rows.append([_to_json(key), number, dict(spec.at)])
    return {"patterns": texts, "tensors": rows}


def _canonical(spec: Spec) -> dict[str, Any]:
    """A pattern as plain data: equal patterns give equal data."""
    used = spec.layout.meshes | (spec.declared.meshes if spec.declared else frozenset())
    data = spec.replace(mesh={name: spec.mesh[name] for name in sorted(used) if name in spec.mesh}, at={}).to_json()
    data["layout"] = spec.layout.canonical
    data["declared"] = spec.declared.canonical if spec.declared else None
    return data


def _from_sides(data: dict[str, Any]) -> dict[Any, Spec]:
    patterns = [Spec.from_json(pattern) for pattern in data["patterns"]]
    return {
        _from_json(key): patterns[number].replace(at=at) if at else patterns[number]
        for key, number, at in data["tensors"]
    }


def save(plan: CopyPlan, path: Path) -> None:
    """Write a plan; see `CopyPlan.save`."""
    for key in (*plan.sources, *plan.targets):
        _refuse_key(key)
    extra = {
        "source_keys": [_to_json(key) for key in plan.source_keys],
        "target_keys": [_to_json(key) for key in plan.target_keys],
        "shapes": plan.table.shapes,
    }
    columns: dict[str, Any] = dict(zip(COLUMNS, plan.table.columns(), strict=True))
    text = json.dumps(made_from(plan, ordered=True) | extra, sort_keys=True)
    archive = io.BytesIO()
    np.savez_compressed(archive, allow_pickle=False, plan=np.frombuffer(text.encode(), dtype=np.uint8), **columns)
    path.write_bytes(_head(archive.getvalue()) + archive.getvalue())


def _head(archive: bytes) -> bytes:
    """The first line of a file: its format, and a digest that shows damage before anything is parsed."""
    return f"{FORMAT} {hashlib.sha256(archive).hexdigest()}\n".encode()


def load(path: Path) -> dict[str, Any]:
    """The fields of the `CopyPlan` that a file holds."""
    try:
        head, _, archive = path.read_bytes().partition(b"\n")
    except OSError as error:
        raise LayoutError(f"{path} holds no plan: {error}") from error
    if not head.startswith(FORMAT.encode()):
        raise LayoutError(f"{path} holds no plan that this version reads: it begins with {head[:40]!r}, not {FORMAT!r}")
    if head + b"\n" != _head(archive):
        raise LayoutError(f"{path}: the plan was changed since it was saved")
    try:
        return _read(path, archive)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise error if isinstance(error, LayoutError) else LayoutError(f"{path} holds no plan: {error}") from error


def _read(path: Path, archive: bytes) -> dict[str, Any]:
    with np.load(io.BytesIO(archive), allow_pickle=False) as arrays:
        data = json.loads(arrays["plan"].tobytes())
        columns = [arrays[name] for name in COLUMNS]
    table = Table(tuple(tuple(tuple(digit) for digit in shape) for shape in data["shapes"]), *columns)
    _check_table(path, table, data)
    return {
        "sources": _from_sides(data["sources"]),
        "targets": _from_sides(data["targets"]),
        "source_keys": tuple(map(_from_json, data["source_keys"])),
        "target_keys": tuple(map(_from_json, data["target_keys"])),
        "table": table,
        "unused": data["unused"],
        "replicas": data["replicas"],
        "inverted": data["inverted"],
        "strides": tuple({_from_json(key): tuple(stride) for key, stride in side} for side in data["strides"]),
    }


def _check_table(path: Path, table: Table, data: dict[str, Any]) -> None:
    """A digest can be made again by anybody: what an executor takes for granted must hold all the same."""
    digits = [number for shape in table.shapes for digit in shape for number in digit]
    sound = all(isinstance(number, int) and number >= 0 for number in digits)
    sound = sound and all(len(digit) == 3 and digit[0] >= 1 for shape in table.shapes for digit in shape)
    sound = sound and all(column.dtype == np.int64 and column.shape == table.shape.shape for column in table.columns())
    for column, low, high in (
        (table.shape, 0, len(table.shapes)),
        (table.source, -1, len(data["source_keys"])),
        (table.target, 0, len(data["target_keys"])),
    ):
        sound = sound and bool(((column >= low) & (column < high)).all())
    for side in ("source", "target"):
        named = {json.dumps(key) for key, _, _ in data[f"{side}s"]["tensors"]}
        sound = sound and named == {json.dumps(key) for key in data[f"{side}_keys"]}
    if not sound:
        raise LayoutError(f"{path}: the table of the plan is not one that a compiler made")


def _refuse_key(key: object) -> None:
    parts = key if isinstance(key, tuple) else (key,)
    if not all(isinstance(part, (str, int)) for part in parts):
        raise LayoutError(f"key {key!r} cannot be saved: a text, a number or a tuple of those was wanted")


def _to_json(key: object) -> object:
    return list(key) if isinstance(key, tuple) else key


def _from_json(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key

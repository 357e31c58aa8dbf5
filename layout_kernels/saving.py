# SPDX-License-Identifier: Apache-2.0
"""Plans as files: the Specs as JSON beside the table's arrays, in one .npz archive without pickle."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import LayoutError
from .spec import Spec
from .table import Table

if TYPE_CHECKING:
    from .plan import CopyPlan

FORMAT = 1
COLUMNS = ("shape", "source", "target", "source_offset", "target_offset")


def made_from(plan: CopyPlan) -> dict[str, Any]:
    """What a plan was made from, as plain data: keys, Specs (each pattern once) and choices."""
    return {
        "format": FORMAT,
        "sources": _sides(plan.sources),
        "targets": _sides(plan.targets),
        "unused": plan.unused,
        "replicas": plan.replicas,
        "inverted": plan.inverted,
    }


def _sides(specs: dict[Any, Spec]) -> dict[str, Any]:
    """Tens of thousands of Specs share a few patterns: each is written once, with the coordinates beside the keys."""
    patterns: dict[Any, int] = {}
    texts: list[dict[str, Any]] = []
    rows = []
    for key, spec in specs.items():
        number = patterns.setdefault((spec.pattern(), spec.mesh), len(patterns))
        if number == len(texts):
            canonical = spec.to_json() | {"layout": spec.layout.canonical, "at": {}}
            canonical["declared"] = spec.declared.canonical if spec.declared else None
            texts.append(canonical)
        rows.append([_to_json(key), number, dict(spec.at)])
    return {"patterns": texts, "tensors": rows}


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
        "digest": plan.digest,
    }
    text = np.frombuffer(json.dumps(made_from(plan) | extra).encode(), dtype=np.uint8)
    columns: dict[str, Any] = dict(zip(COLUMNS, plan.table.columns(), strict=True))
    with path.open("wb") as file:
        np.savez_compressed(file, plan=text, allow_pickle=False, **columns)


def load(path: Path) -> dict[str, Any]:
    """The fields of the `CopyPlan` that a file holds."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            data = json.loads(archive["plan"].tobytes())
            columns = [archive[name] for name in COLUMNS]
        if data["format"] != FORMAT:
            raise LayoutError(f"{path}: a plan of format {data['format']}; this version reads {FORMAT}")
        shapes = tuple(tuple(tuple(digit) for digit in shape) for shape in data["shapes"])
        return {
            "sources": _from_sides(data["sources"]),
            "targets": _from_sides(data["targets"]),
            "source_keys": tuple(map(_from_json, data["source_keys"])),
            "target_keys": tuple(map(_from_json, data["target_keys"])),
            "table": Table(shapes, *columns),
            "unused": data["unused"],
            "replicas": data["replicas"],
            "inverted": data["inverted"],
        }
    except (KeyError, IndexError, TypeError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise LayoutError(f"{path} holds no plan: {error}") from error


def _refuse_key(key: object) -> None:
    parts = key if isinstance(key, tuple) else (key,)
    if not all(isinstance(part, (str, int)) for part in parts):
        raise LayoutError(f"key {key!r} cannot be saved: a text, a number or a tuple of those was wanted")


def _to_json(key: object) -> object:
    return list(key) if isinstance(key, tuple) else key


def _from_json(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key

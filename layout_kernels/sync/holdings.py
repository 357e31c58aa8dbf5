# SPDX-License-Identifier: Apache-2.0
"""What a rank says it holds: names, Specs, shapes and dtypes, as JSON with a schema, never as pickled objects."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ..errors import LayoutError, nearest
from ..spec import Spec, dtype_named

FORMAT = 1
TEXT_LIMIT = 1 << 30  # bytes of JSON once it is unpacked


@dataclass(frozen=True)
class Holding:
    """One tensor of one rank: its Spec, and the shape and dtype that it really has."""

    spec: Spec
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.elements * self.dtype.itemsize


@dataclass(frozen=True)
class Holdings:
    """All that one rank says before the first sync.

    ``error`` is why it cannot take part, if it cannot; ``options`` are those that all ranks must agree about.
    """

    role: str
    tensors: dict[str, Holding] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    error: str = ""


def take_stock(specs: Mapping[str, Spec], tensors: Mapping[str, torch.Tensor]) -> dict[str, Holding]:
    """What a rank holds, each tensor checked against its Spec.

    Raises
    ------
    LayoutError
        Where a name has no Spec or no tensor, or a tensor is not of the shape, dtype or contiguity that its Spec says.
    """
    for name in tensors:
        if name not in specs:
            raise LayoutError(f"tensor {name!r} has no Spec{nearest(name, specs)}")
    held = {}
    for name, spec in specs.items():
        if name not in tensors:
            raise LayoutError(f"Spec {name!r} has no tensor{nearest(name, tensors)}")
        _check(name, spec, tensors[name])
        held[name] = Holding(spec, tuple(tensors[name].shape), tensors[name].dtype)
    return held


def _check(name: str, spec: Spec, tensor: torch.Tensor) -> None:
    if not isinstance(name, str):
        raise LayoutError(f"{name!r} is no name: a text was wanted")
    try:
        wanted = spec.shape()
    except LayoutError as error:
        raise LayoutError(f"tensor {name!r}: {error}") from error
    if tuple(tensor.shape) != wanted:
        layout = str(spec.declared or spec.layout)
        raise LayoutError(f"tensor {name!r} has shape {tuple(tensor.shape)}; {layout!r} wants {wanted}")
    if spec.dtype is not None and tensor.dtype != spec.dtype:
        raise LayoutError(f"tensor {name!r} is {tensor.dtype}; its Spec says {spec.dtype}")
    if spec.declared is not None and not tensor.is_contiguous():
        raise LayoutError(f"tensor {name!r} has a declared shape, so it must be contiguous, not {tensor.stride()}")


def to_bytes(holdings: Holdings) -> bytes:
    """The message. Specs that differ only in ``at`` (experts, layers) are written once."""
    table: dict[Spec, int] = {}
    rows = []
    for name, held in holdings.tensors.items():
        plain = held.spec.replace(at=None)
        row = [name, table.setdefault(plain, len(table)), dict(held.spec.at), list(held.shape), dtype_name(held.dtype)]
        rows.append(row)
    message = {
        "format": FORMAT,
        "role": holdings.role,
        "options": holdings.options,
        "error": holdings.error,
        "specs": [spec.to_json() for spec in table],
        "tensors": rows,
    }
    return pack_message(message)


def from_bytes(data: bytes) -> Holdings:
    """Reads what `to_bytes` wrote.

    Raises
    ------
    LayoutError
        Where it is not of the schema, or a shape contradicts its Spec: it comes from another process.
    """
    message = parse_message(data)
    if message.get("format") != FORMAT:
        raise LayoutError(f"holdings of format {message.get('format')!r}; this version of the library reads {FORMAT}")
    role, options, error = message.get("role"), message.get("options"), message.get("error")
    if role not in ("trainer", "rollout") or not isinstance(options, dict) or not isinstance(error, str):
        raise LayoutError("holdings without a role, options or error of the right kind")
    specs, rows = message.get("specs"), message.get("tensors")
    if not isinstance(specs, list) or not isinstance(rows, list):
        raise LayoutError("holdings without lists of specs and tensors")
    try:
        plain = [Spec.from_json(spec) for spec in specs]
        tensors = dict(_row(row, plain) for row in rows)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as problem:
        raise LayoutError(f"holdings that cannot be read: {problem}") from problem
    if len(tensors) != len(rows):
        raise LayoutError("holdings that name a tensor twice")
    return Holdings(role, tensors, options, error)


def _row(row: Any, specs: list[Spec]) -> tuple[str, Holding]:
    name, number, at, shape, dtype = row
    if not isinstance(name, str) or not isinstance(number, int) or not 0 <= number < len(specs):
        raise LayoutError(f"no name or no Spec in {str(row)[:200]}")
    spec = specs[number].replace(at=at) if at else specs[number]
    held = Holding(spec, tuple(int(size) for size in shape), dtype_named(dtype))
    if held.shape != spec.shape():
        raise LayoutError(f"{name!r} is said to have shape {held.shape}; its Spec says {spec.shape()}")
    return name, held


def parse_message(data: bytes) -> dict[str, Any]:
    """A JSON object out of a compressed message, of bounded length.

    Raises
    ------
    LayoutError
        Where it is anything else.
    """
    unpack = zlib.decompressobj()
    try:
        text = unpack.decompress(data, TEXT_LIMIT)
        if unpack.unconsumed_tail:
            raise LayoutError(f"a message of more than {TEXT_LIMIT} bytes")
        message = json.loads(text)
    except (zlib.error, ValueError, RecursionError) as error:
        raise LayoutError(f"a message that is no JSON: {error}") from error
    if not isinstance(message, dict):
        raise LayoutError("a message that is no JSON object")
    return message


def pack_message(message: Mapping[str, Any]) -> bytes:
    """The message that `parse_message` reads."""
    return zlib.compress(json.dumps(message, separators=(",", ":")).encode(), 1)


def dtype_name(dtype: torch.dtype) -> str:
    """``torch.bfloat16`` -> ``"bfloat16"``."""
    return str(dtype).removeprefix("torch.")

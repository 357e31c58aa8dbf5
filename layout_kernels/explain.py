# SPDX-License-Identifier: Apache-2.0
"""A plan in words: what moves between which layouts, in which shapes."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from .spec import Spec
from .table import Shape

if TYPE_CHECKING:
    from .plan import CopyPlan


def explain(plan: CopyPlan) -> str:
    """See `CopyPlan.explain`. Tensors of one pattern are told once, with their number."""
    pairs: dict[Any, Counter[int]] = {}
    first: dict[Any, tuple[Any, Any]] = {}
    table = plan.table
    for shape, source, target in zip(table.shape.tolist(), table.source.tolist(), table.target.tolist(), strict=True):
        ours = plan.source_keys[source] if source >= 0 else None
        theirs = plan.target_keys[target]
        pair = (plan.sources[ours].pattern() if source >= 0 else None, plan.targets[theirs].pattern())
        pairs.setdefault(pair, Counter())[shape] += 1
        first.setdefault(pair, (ours, theirs))
    lines = [
        f"{len(plan.sources)} sources -> {len(plan.targets)} targets, {len(table)} blocks, {plan.elements:,} elements"
    ]
    for pair, shapes in pairs.items():
        ours, theirs = first[pair]
        lines += ["", _heading(ours, plan.sources.get(ours)), _heading(theirs, plan.targets[theirs], arrow=True)]
        size = _itemsize(plan, ours, theirs)
        for number, count in shapes.items():
            shape = table.shapes[number]
            lines.append(f"    {count:>7} x {_shape(shape, ours is None)}{_amount(shape, count, size)}")
    return "\n".join(lines)


def _heading(key: Any, spec: Spec | None, arrow: bool = False) -> str:
    if spec is None:
        return "  zeros"
    mesh = "".join(f" {name}={value}" for name, value in spec.mesh.items() if name in spec.layout.meshes)
    at = "".join(f" {name}={value}" for name, value in spec.at.items())
    of = f" of {spec.of}" if spec.of else ""
    return f"  {'-> ' if arrow else ''}{key!r}{of}: {spec.layout}{mesh}{at}"


def _itemsize(plan: CopyPlan, source: Any, target: Any) -> int | None:
    dtype = plan.targets[target].dtype or (plan.sources[source].dtype if source is not None else None)
    return dtype.itemsize if dtype else None


def _amount(shape: Shape, count: int, size: int | None) -> str:
    elements = count * math.prod(extent for extent, _, _ in shape)
    return f"; {elements:,} elements" + (f", {elements * size:,} bytes" if size else "")


def _shape(shape: Shape, zeros: bool) -> str:
    """``64 rows of 1024 elements, …`` or the transpose it is."""
    if zeros:
        return f"zero fill of {' x '.join(str(extent) for extent, _, _ in shape) or 1}"
    if not shape:
        return "one element"
    run = shape[-1][0] if shape[-1][1] == shape[-1][2] == 1 else 1
    outer = shape[:-1] if run > 1 else shape
    kind = "run" if not outer else "rows" if run > 1 else "transpose" if any(s == 1 for _, s, _ in outer) else "strided"
    digits = ", ".join(f"{extent} (source step {ours}, target step {theirs})" for extent, ours, theirs in outer)
    return f"{kind} of {run} element{'s' * (run > 1)}" + (f" x {digits}" if digits else "")

# SPDX-License-Identifier: Apache-2.0
"""Which part of a model one rank holds: its mesh coordinates and its pipeline stage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import LayoutError, nearest
from ..notation import Name, Select
from ..spec import Selection, selected
from .systems import System
from .table import choose

MESHES = ("tp", "ep", "etp", "pp", "fsdp")
WHOLE = (1, 0)
PLACEMENTS: Mapping[str, object] = {"linear": None, "round-robin": None}
SHARDS: Mapping[str, object] = {"rows": None, "flat": None}


@dataclass(frozen=True)
class Stage:
    """What one pipeline stage (or one of its virtual chunks) holds."""

    layers: tuple[int, ...]
    first: bool  # with the embedding
    last: bool  # with the final norm, the head and multi-token prediction
    prefix: str = ""


def meshes(system: System, name: str, given: Mapping[str, Any] | None, tp_extend_ep: bool) -> dict[str, Any]:
    """The rank's selections: those given, and those that follow from them.

    ``etp`` is ``tp`` where it is not given, as in Megatron-Core; engines do not cut experts under expert parallelism.
    With ``tp_extend_ep`` (MindSpeed) the tensor-parallel ranks hold experts of their own, whole.
    """
    given = dict(given or {})
    for key, value in given.items():
        if key not in MESHES:
            raise LayoutError(f"mesh {key!r} is not known: there are {', '.join(MESHES)}{nearest(key, MESHES)}")
        if key != "ep" and not isinstance(value, tuple):
            raise LayoutError(f"mesh {key!r} is {value!r}: (size, coordinate) was wanted")
        if (system.modules if key != "fsdp" else not system.modules) and value != WHOLE:
            what = "holds whole models" if system.modules else "does not cut tensors flat"
            raise LayoutError(f"system {name!r} {what}: mesh {key}={value!r} cannot be")
    tp = given.get("tp", WHOLE)
    ep = given.get("ep", WHOLE)
    etp = given.get("etp", WHOLE if system.whole_experts and ep != WHOLE else tp)
    if tp_extend_ep:
        if given.get("etp", WHOLE) != WHOLE:
            raise LayoutError(f"tp_extend_ep keeps experts whole: mesh etp={etp!r} cannot be")
        ep, etp = (ep[0] * tp[0], ep[1] * tp[0] + tp[1]), WHOLE
    return {"tp": tp, "ep": ep, "etp": etp, "pp": given.get("pp", WHOLE), "fsdp": given.get("fsdp", WHOLE)}


def placed(placement: object, ep: Selection, experts: int) -> Selection:
    """The experts of one rank of an engine, which need not divide evenly: the remainder goes to the first ranks."""
    choose("option placement", placement, PLACEMENTS)
    if not isinstance(ep, tuple):
        return ep
    size, rank = ep
    if placement == "round-robin":
        return list(range(rank, experts, size))
    if experts % size == 0:
        return ep
    share, more = divmod(experts, size)
    return slice(rank * share + min(rank, more), (rank + 1) * share + min(rank + 1, more))


def flat(shard: object, fsdp: tuple[int, int], shape: tuple[int, ...]) -> slice:
    """What one rank of fully sharded data parallel holds: equal pieces of rows or of elements, the last ones short."""
    choose("option shard", shard, SHARDS)
    size, rank = fsdp
    whole = shape[0] if shard == "rows" else math.prod(shape)
    share = -(-whole // size)
    return slice(min(rank * share, whole), min((rank + 1) * share, whole))


def kv_heads(tp: tuple[int, int], heads: int) -> tuple[int, int]:
    """Which kv heads an engine's rank holds: its share, or one that several ranks hold where there are more ranks."""
    size, coordinate = tp
    if size <= heads:
        return tp
    if size % heads:
        raise LayoutError(f"{size} tensor-parallel ranks cannot share {heads} kv heads evenly")
    return heads, coordinate // (size // heads)


def positions(selection: Selection, whole: int, what: str) -> list[int]:
    """The positions of an axis that a selection holds, in order."""
    try:
        ranges = selected(Select(Name(what), "ep"), whole, {"ep": selection})
    except LayoutError as error:
        raise LayoutError(f"{what}: {error}") from None
    return [position for start, stop in ranges for position in range(start, stop)]


def stages(layers: object, pp: tuple[int, int], whole: int, first: bool | None, last: bool | None) -> list[Stage]:
    """The stages of one rank: an even share of the layers, those listed, or a list of them for each virtual chunk."""
    if layers is None:
        size, coordinate = pp
        if whole % size:
            raise LayoutError(f"{whole} layers do not divide into {size} equal stages: give layers=[…] for this rank")
        share = whole // size
        ends = (coordinate == 0, coordinate == size - 1)
        return [_stage(range(coordinate * share, (coordinate + 1) * share), whole, *_said((first, last), ends), "")]
    if not isinstance(layers, Sequence):
        raise LayoutError(f"layers is {layers!r}: a list of layer numbers, or a list of such lists, was wanted")
    if layers and isinstance(layers[0], Sequence):
        if first is not None or last is not None:
            raise LayoutError("pre_process and post_process are told by the layers of virtual chunks: leave them out")
        return [_stage(chunk, whole, 0 in chunk, whole - 1 in chunk, f"model{i}.") for i, chunk in enumerate(layers)]
    return [_stage(layers, whole, *_said((first, last), (0 in layers, whole - 1 in layers)), "")]


def _said(given: tuple[bool | None, bool | None], otherwise: tuple[bool, bool]) -> tuple[bool, bool]:
    first, last = given
    return otherwise[0] if first is None else first, otherwise[1] if last is None else last


def _stage(layers: Sequence[int], whole: int, first: bool, last: bool, prefix: str) -> Stage:
    for layer in layers:
        if not isinstance(layer, int) or not 0 <= layer < whole:
            raise LayoutError(f"layer {layer!r} is none of the model's {whole}: layers are numbered from 0")
    if len(set(layers)) != len(layers):
        raise LayoutError(f"layers {list(layers)} name one twice")
    return Stage(tuple(layers), first, last, prefix)

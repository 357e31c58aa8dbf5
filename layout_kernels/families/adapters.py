# SPDX-License-Identifier: Apache-2.0
"""Low-rank adapters: A and B of a linear, whose rows and columns are those of its weight.

The names are those of Megatron-Bridge's and PEFT's adapters. The first factor of a column-parallel linear is cut along
the rank (``lr``), the second as the weight's rows are; of a row-parallel linear the first is cut as the weight's
columns are, the second along its rows. Where the weight is whole on every rank, both factors are cut all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import LayoutError, nearest
from ..notation import Layout
from ..spec import Selection, Spec
from .family import Family

NAMES: Mapping[str, tuple[str, str]] = {
    "megatron": ("{module}.adapter.linear_in.weight", "{module}.adapter.linear_out.weight"),
    "hf": ("base_model.model.{module}.lora_A.weight", "base_model.model.{module}.lora_B.weight"),
}
# Logical tensors whose parts are adapted one by one: each has a first factor of its own.
APART = frozenset({"layers.attention.qkv_down.weight"})
# Choices of a trainer under which one module's first factor would stand for several in a checkpoint, or the reverse.
REFUSED: Mapping[str, tuple[str, ...]] = {
    "down": ("fused-sharded", "fused-replicated", "mindspeed"),
    "up": ("mm-split",),
}


def adapters(family: Family, system: str, *, rank: int, targets: Iterable[str], **how: Any) -> dict[str, Spec]:
    """What one rank of a system holds of low-rank adapters.

    Parameters
    ----------
    family : Family
        The model's family.
    system : str
        ``"megatron"``, or ``"hf"`` for the files of PEFT.
    rank : int
        The rank of the adapters.
    targets : iterable of str
        The modules that have one, by the last part of their names: ``["linear_qkv", "linear_fc1"]``, or ``["q_proj",
        "k_proj", "v_proj", "gate_proj", "up_proj"]``.
    **how
        As `Family.specs` takes it.

    Returns
    -------
    dict
        ``{name: Spec}``. A fused linear has one first factor where a checkpoint has one for each of its parts: from
        there to the trainer they must be equal, and ``replicas="first"`` takes the first.

    Raises
    ------
    LayoutError
        Where a target is no linear of the model, or is one whose adapters have no layout here (routed experts in one
        tensor).
    """
    names = _names(system, how)
    tp = (how.get("mesh") or {}).get("tp", (1, 0))
    wanted = list(targets)
    weights = {name: spec for name, spec in family.specs(system, **how).items() if len(spec.layout.dimensions) == 2}
    modules = {name.removesuffix(".weight"): spec for name, spec in weights.items() if name.endswith(".weight")}
    for target in wanted:
        known = {module.rsplit(".", 1)[-1] for module in modules}
        if target not in known:
            raise LayoutError(f"{target!r} is no linear of {system!r} that can be adapted{nearest(target, known)}")
    found = {}
    for module, spec in modules.items():
        if module.rsplit(".", 1)[-1] in wanted:
            for name, factor in zip(names, _factors(spec, rank, module, tp), strict=True):
                found[name.format(module=module)] = factor
    return found


def _names(system: str, how: Mapping[str, Any]) -> tuple[str, str]:
    if system not in NAMES:
        raise LayoutError(f"adapters of {system!r} are not known: there are {', '.join(map(repr, NAMES))}")
    for option, values in REFUSED.items():
        if how.get(option) in values:
            raise LayoutError(f"adapters with {option}={how[option]!r} have no counterpart in a checkpoint")
    return NAMES[system]


def _factors(weight: Spec, rank: int, module: str, tp: Selection) -> tuple[Spec, Spec]:
    """The first and the second factor of one linear."""
    if weight.declared is not None:
        raise LayoutError(f"module {module!r}: the bytes of its weight are not those of its shape, nor its adapters'")
    out, into = weight.layout.dimensions
    (cut,) = weight.layout.meshes or {"tp"}
    by_columns, by_rows = (Layout(str(node)).meshes for node in (into, out))
    first = f"lr {into}" if by_columns else f"lr/{cut} {into}"
    second = f"{out} lr" if by_rows else f"({out})/{cut} lr"
    part = f".{min(weight.layout.tags & {'q', 'q_a', 'kv_a'})}" if weight.of in APART else ""
    held = {
        "dims": {**dict(weight.dims or {}), "lr": rank},
        "mesh": {cut: weight.mesh.get(cut, tp)},
    }
    return (
        weight.replace(layout=first, of=f"{weight.of}.lora_a{part}", **held),
        weight.replace(layout=second, of=f"{weight.of}.lora_b{part}", **held),
    )

# SPDX-License-Identifier: Apache-2.0
"""The ways in which weights reach the engine: the right one, none at all, and known mistakes.

A mistake is what its reader believes about the trainer's bytes, written as the Spec that says so; the sync then moves
faithfully what it was told. Only the rounded bias touches a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Held = tuple[dict[str, Any], dict[str, Any]]  # {name: Spec}, {name: tensor}
FC1 = "layers.experts.fc1.weight"


@dataclass(frozen=True)
class Scenario:
    """One way: how the engine gets its weights, and which mistake is made on the trainer's side.

    Attributes
    ----------
    how : "sync" (written in place through the channel), "fresh" (a new engine loads a converted checkpoint), "reload"
        (the engine's own reload of that checkpoint) or "none"
    mistake : what the reader believes of (name, Spec, tensor), None for the truth
    parts : beginnings of the names that the mistake concerns
    draft : whether the draft is written too
    grouped : only where experts are stored grouped
    """

    title: str
    how: str = "sync"
    mistake: Callable[[Any, Any], tuple[Any, Any]] | None = None
    parts: tuple[str, ...] = ("",)
    draft: bool = True
    grouped: bool = False

    def held(self, specs: Mapping[str, Any], tensors: Mapping[str, Any]) -> Held:
        """What the reader believes that the trainer holds."""
        believed: Held = (dict(specs), dict(tensors))
        if self.mistake is not None:
            for name in [name for name in specs if name.startswith(self.parts)]:
                believed[0][name], believed[1][name] = self.mistake(specs[name], tensors[name])
        return believed


def _reworded(spec: Any, words: str, other: str) -> Any:
    """The Spec with words of its layout replaced; the shape that it declares stays."""
    from layout_kernels import Layout

    return spec.replace(layout=Layout(str(spec.layout).replace(words, other)))


def legal_view(spec: Any, tensor: Any) -> tuple[Any, Any]:
    """`weight1.view(experts, 2 * width, hidden)`: the count fits, so nothing complains."""
    from layout_kernels import Layout

    if spec.of != FC1:
        return spec, tensor
    return spec.replace(layout=Layout("e/ep ([gate up] i/etp) h")), tensor


def declared_dimension(spec: Any, tensor: Any) -> tuple[Any, Any]:
    """`cat(ranks, dim=1).view(experts, hidden, 2 * width)`: the dimension that the declared shape has for experts.

    A row of the concatenation holds a row of each rank. Read as experts, these rows are `e h1`, and the ranks in a row
    pass for a part of the hidden axis.
    """
    from layout_kernels import Layout

    if spec.of != FC1:
        return spec, tensor
    experts, (ranks, _) = spec.dims["e"], spec.mesh["ep"]
    cut = {"h": ("h1", "r", "h0"), "h1": spec.dims["h"] // experts, "r": ranks, "h0": experts // ranks}
    layout = Layout("(e h1) (r/ep h0 [gate up] i/etp)")
    return spec.replace(layout=layout, declared=None, dims={**spec.dims, **cut}), tensor


def gate_and_up(spec: Any, tensor: Any) -> tuple[Any, Any]:
    """Every gated projection read as up and gate."""
    return _reworded(spec, "[gate up]", "[up gate]"), tensor


def halves(spec: Any, tensor: Any) -> tuple[Any, Any]:
    """`eh_proj` read as the family has it that puts the hidden state first."""
    return _reworded(spec, "[embed:h hidden:h]", "[hidden:h embed:h]"), tensor


def rounded_bias(spec: Any, tensor: Any) -> tuple[Any, Any]:
    """The float32 expert bias cast with the rest of the model."""
    import torch

    if not spec.of.endswith("expert_bias"):
        return spec, tensor
    return spec.replace(dtype=torch.bfloat16), tensor.to(torch.bfloat16)


DRAFT = ("mtp.",)  # how the trainer's names of the draft begin

SCENARIOS: Mapping[str, Scenario] = {
    "fresh": Scenario("a fresh engine, converted checkpoint", "fresh"),
    "ours": Scenario("our sync"),
    "none": Scenario("no sync", "none"),
    "no-draft": Scenario("draft left out", draft=False),
    "halves": Scenario("MTP halves exchanged", mistake=halves, parts=DRAFT),
    "view-draft": Scenario("draft: view() of the wrong order", mistake=legal_view, parts=DRAFT, grouped=True),
    "dim1-draft": Scenario("draft: ranks joined on dim 1", mistake=declared_dimension, parts=DRAFT, grouped=True),
    "gate-up-draft": Scenario("draft: gate and up exchanged", mistake=gate_and_up, parts=DRAFT),
    "bias-draft": Scenario("draft: expert bias in bf16", mistake=rounded_bias, parts=DRAFT),
    "view": Scenario("view() of the wrong order", mistake=legal_view, grouped=True),
    "dim1": Scenario("ranks joined on dim 1", mistake=declared_dimension, grouped=True),
    "gate-up": Scenario("gate and up exchanged", mistake=gate_and_up),
    "bias": Scenario("expert bias in bf16", mistake=rounded_bias),
    "reload": Scenario("the engine's own reload", "reload"),
}


def chosen(names: tuple[str, ...], experts: str) -> dict[str, Scenario]:
    """The scenarios of a run, in order; the fresh engine is always there: it is the truth."""
    unknown = set(names) - set(SCENARIOS)
    if unknown:
        raise ValueError(f"no scenario {sorted(unknown)}; there are {list(SCENARIOS)}")
    return {
        name: scenario
        for name, scenario in SCENARIOS.items()
        if (not names or name in names or name == "fresh") and (experts == "grouped" or not scenario.grouped)
    }

# SPDX-License-Identifier: Apache-2.0
"""Random layouts of both sides against a plain listing of elements, in memory that notices a stray write."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from random_layouts import fits, side, world
from shadow import BACKENDS, POISON, Guarded, guarded

import layout_kernels as lk
from layout_kernels.testing import assert_same_bytes, listing, tagged

DTYPES = [torch.uint8, torch.int16, torch.bfloat16, torch.int32, torch.int64]
randoms = st.randoms(use_true_random=False)
few = settings(
    derandomize=True,
    deadline=None,
    max_examples=50,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate, Phase.shrink),
)
Specs = dict[Any, lk.Spec]


def drawn(r: Random) -> tuple[Specs, Specs]:
    one = world(r)
    sources, targets = side(r, one, target=False), side(r, one, target=True)
    if r.randrange(4) == 0:  # one to many
        targets |= {("again", *key): spec for key, spec in side(r, one, target=True).items()}
    assume(fits(sources) and fits(targets))
    return sources, targets


def elements(spec: lk.Spec) -> set[Any]:
    """The identities that a tensor holds."""
    return {
        (p.tags, p.axes, n) for p in listing(spec) if not p.padding for n in p.number.reshape(-1).tolist() if n >= 0
    }


def repeated(specs: Specs) -> bool:
    held = [elements(spec) for spec in specs.values()]
    return sum(map(len, held)) > len(set().union(*held))


def compiled(sources: Specs, targets: Specs) -> lk.CopyPlan:
    return lk.compile(sources, targets, replicas="first" if repeated(sources) else "refuse")


def buffers(specs: Specs, dtype: torch.dtype, r: Random) -> dict[Any, Guarded]:
    """Poisoned memory for every tensor: aligned, misaligned or strided (not where ``declared`` wants it contiguous)."""
    places: list[dict[str, Any]] = [{}, {"shift": 1}, {"shift": 3}, {"holes": True}, {"holes": True, "shift": 1}]
    return {k: guarded(s.shape(), dtype, **r.choice(places[:3] if s.declared else places)) for k, s in specs.items()}


def fill(held: dict[Any, Guarded], specs: Specs, dtype: torch.dtype) -> None:
    for key, spec in specs.items():
        held[key].tensor.copy_(tagged(spec, dtype))
        held[key].before.copy_(held[key].buffer)


def assert_holds(held: dict[Any, Guarded], specs: Specs, dtype: torch.dtype) -> None:
    """Every element where its Spec says, kept padding still poisoned, zeroed padding zero, nothing else touched."""
    poison = int.from_bytes(bytes([POISON] * dtype.itemsize), "big")
    for key, spec in specs.items():
        bits = 0 if "zero" in spec.padding.values() else poison
        assert_same_bytes(held[key].tensor, tagged(spec, dtype, padding=bits), f"{key} {spec}")
        held[key].assert_untouched(key)


def tensors(held: dict[Any, Guarded]) -> dict[Any, torch.Tensor]:
    return {key: guard.tensor for key, guard in held.items()}


@pytest.mark.parametrize("backend", BACKENDS)
@few
@given(r=randoms)
def test_every_element_arrives(backend: str, r: Random) -> None:
    sources, targets = drawn(r)
    plan, dtype = compiled(sources, targets), r.choice(DTYPES)
    ours, theirs = buffers(sources, dtype, r), buffers(targets, dtype, r)
    fill(ours, sources, dtype)
    bound = plan.bind(tensors(ours), tensors(theirs), backend)
    for _ in range(2):  # running twice changes nothing
        bound.run()
        assert_holds(theirs, targets, dtype)
    for key, guard in ours.items():
        assert_same_bytes(guard.buffer, guard.before, f"source {key}")


@few
@given(r=randoms)
def test_the_inverse_brings_everything_back(r: Random) -> None:
    sources, targets = drawn(r)
    plan, dtype = compiled(sources, targets), r.choice(DTYPES)
    theirs, back = buffers(targets, dtype, r), buffers(sources, dtype, r)
    fill(theirs, targets, dtype)
    inverse = plan.inverse()
    inverse.run(tensors(theirs), tensors(back))
    assert_holds(back, sources, dtype)
    inverse.check()


@few
@given(r=randoms)
def test_plans_are_proved_and_written_once(r: Random) -> None:
    """The derivation repeats, and every target element that is no kept padding is in exactly one block."""
    sources, targets = drawn(r)
    plan = compiled(sources, targets)
    plan.check()
    assert plan == compiled(dict(sources), dict(targets))
    written = {key: np.zeros(math.prod(spec.shape()), dtype=np.int64) for key, spec in targets.items()}
    rows = (plan.table.shape.tolist(), plan.table.target.tolist(), plan.table.target_offset.tolist())
    for shape, target, offset in zip(*rows, strict=True):
        places = np.array([offset])
        for extent, _, step in plan.table.shapes[shape]:
            places = (places[:, None] + np.arange(extent) * step).reshape(-1)
        np.add.at(written[plan.target_keys[target]], places, 1)
    for key, spec in targets.items():
        kept = tagged(spec, torch.int64, padding=-1).reshape(-1) < 0
        wanted = torch.ones_like(kept) if "zero" in spec.padding.values() else ~kept
        assert written[key].tolist() == wanted.to(torch.int64).tolist(), f"{key} {spec}"


@few
@given(r=randoms)
def test_a_shard_dropped_or_doubled_is_refused(r: Random) -> None:
    sources, targets = drawn(r)
    plan = compiled(sources, targets)
    lost = r.choice(list(sources))
    others = {key: spec for key, spec in sources.items() if key != lost}
    if elements(sources[lost]) - set().union(*map(elements, others.values())):
        with pytest.raises(lk.LayoutError, match="no source"):
            lk.compile(others, targets, replicas="first")
    else:
        assert lk.compile(others, targets, replicas="first").elements == plan.elements
    if elements(sources[lost]):
        with pytest.raises(lk.LayoutError, match="replicas='first'"):
            lk.compile({**sources, "doubled": sources[lost]}, targets)


@few
@given(r=randoms)
def test_unwanted_elements_are_refused_or_allowed(r: Random) -> None:
    sources, targets = drawn(r)
    lost = r.choice(list(targets))
    others = {key: spec for key, spec in targets.items() if key != lost}
    replicas = "first" if repeated(sources) else "refuse"
    if elements(targets[lost]) - set().union(*map(elements, others.values())):
        with pytest.raises(lk.LayoutError, match="unused='allow'"):
            lk.compile(sources, others, replicas=replicas)
    allowed = lk.compile(sources, others, unused="allow", replicas=replicas)
    assert set(allowed.target_keys) == set(others)


@few
@given(r=randoms)
def test_two_steps_are_one(r: Random) -> None:
    """Conversions compose: through any layout in between, the same bytes arrive."""
    one = world(r)
    sources, between, targets = (side(r, one, target=target) for target in (False, False, True))
    assume(all(map(fits, (sources, between, targets))))
    dtype = r.choice(DTYPES)
    ours, middle, theirs = (buffers(specs, dtype, r) for specs in (sources, between, targets))
    fill(ours, sources, dtype)
    compiled(sources, between).run(tensors(ours), tensors(middle))
    compiled(between, targets).run(tensors(middle), tensors(theirs))
    assert_holds(theirs, targets, dtype)

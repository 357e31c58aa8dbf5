# SPDX-License-Identifier: Apache-2.0
"""The tools that other tests rely on, against index loops still plainer than they are; and that they can fail."""

from __future__ import annotations

import itertools
import math
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from random_layouts import fits, side, world

import layout_kernels as lk
from layout_kernels.notation import Concat, Count, Name, Node, Product, Select
from layout_kernels.testing import assert_same_bytes, convert, listing, tagged

some = settings(
    derandomize=True,
    deadline=None,
    max_examples=50,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate, Phase.shrink),
)
randoms = st.randoms(use_true_random=False)
Words = frozenset[str]  # "t:q" a tag, "a=3" a coordinate, "pad:w" the end of a short axis


def size_of(dims: Any, axis: str) -> tuple[int, int]:
    """(positions that count, positions in memory) of an axis."""
    value = dims[axis]
    if isinstance(value, int):
        return value, value
    parts = [part for part in value if isinstance(part, str)]
    length = math.prod(size_of(dims, part)[0] for part in parts)
    return (value[0] if isinstance(value[0], int) else length), length


def words(node: Node, dims: Any, mesh: Any) -> list[Words]:
    """What stands at each position of an axis of a layout, as words; one plain loop a rule."""
    if isinstance(node, Name):
        size, length = size_of(dims, node.name)
        return [frozenset([f"{node.name}={x}" if x < size else f"pad:{node.name}"]) for x in range(length)]
    if isinstance(node, Count):
        return [frozenset()] * node.size
    if isinstance(node, Product):
        found: list[Words] = [frozenset()]
        for axis in node.axes:
            found = [one | two for one in found for two in words(axis, dims, mesh)]
        return found
    if isinstance(node, Concat):
        return [word | ({f"t:{tag}"} - {"t:_"}) for tag, axis in node.segments for word in words(axis, dims, mesh)]
    assert isinstance(node, Select)
    inner, entry = words(node.axis, dims, mesh), mesh[node.mesh]
    if isinstance(entry, tuple):
        step = len(inner) // entry[0]
        return inner[step * entry[1] : step * (entry[1] + 1)]
    return [inner[x] for x in (range(entry.start, entry.stop) if isinstance(entry, slice) else entry)]


def whole(found: Words, dims: Any) -> Words:
    """Parts of a cut replaced by the coordinate of the whole, as long as a cut has all its parts."""
    held = {word.split("=")[0]: int(word.split("=")[1]) for word in found if "=" in word}
    rest = {word for word in found if "=" not in word}
    for axis in sorted(dims, key=lambda name: -depth(dims, name)):
        parts = [part for part in dims[axis] if isinstance(part, str)] if isinstance(dims[axis], tuple) else []
        if parts and all(part in held for part in parts):
            number = 0
            for part in parts:
                number = number * size_of(dims, part)[0] + held.pop(part)
            if number < size_of(dims, axis)[0]:
                held[axis] = number
            else:
                rest.add(f"pad:{axis}")
    return frozenset(rest | {f"{axis}={x}" for axis, x in held.items()})


def depth(dims: Any, axis: str) -> int:
    """How many cuts lie above an axis."""
    above = [name for name, value in dims.items() if isinstance(value, tuple) and axis in value]
    return 1 + depth(dims, above[0]) if above else 0


def elements(spec: lk.Spec) -> list[Words | None]:
    """The identity of every element of a tensor, row-major by its layout; None where it is padding."""
    dims = dict(spec.dims or {})
    dimensions = [words(node, dims, spec.mesh) for node in spec.layout.dimensions]
    fixed = frozenset(f"{axis}={x}" for axis, x in spec.at.items())
    found = [whole(frozenset().union(fixed, *combo), dims) for combo in itertools.product(*dimensions)]
    padded = {f"t:{name}" for name in spec.padding}
    return [None if word & padded or any(w.startswith("pad:") for w in word) else word for word in found]


@some
@given(r=randoms)
def test_listing_names_every_element_by_its_identity(r: Random) -> None:
    spec = r.choice(list(specs_of(r).values()))
    shape = spec.replace(declared=None).shape()
    found: dict[Any, Any] = {}
    for part in listing(spec):
        for place, number in zip(
            itertools.product(*(p.tolist() for p in part.place)), part.number.reshape(-1).tolist(), strict=True
        ):
            assert place not in found, "a place is listed twice"
            found[place] = None if part.padding or number < 0 else identity(part, number)
    expected = dict(zip(itertools.product(*map(range, shape)), elements(spec), strict=True))
    assert found == expected, spec


def identity(part: Any, number: int) -> Words:
    held = {f"t:{tag}" for tag in part.tags}
    for axis, size in reversed(part.axes):
        number, coordinate = divmod(number, size)
        held.add(f"{axis}={coordinate}")
    return frozenset(held)


def specs_of(r: Random) -> dict[Any, lk.Spec]:
    specs = side(r, world(r), target=r.randrange(2) == 0)
    assume(fits(specs) and specs)
    return specs


@some
@given(r=randoms)
def test_tagged_tells_identities_apart_and_padding_from_all(r: Random) -> None:
    specs = specs_of(r)
    bits: dict[Any, int] = {}
    for spec in specs.values():
        values = tagged(spec, torch.int64, padding=-7).reshape(-1).tolist()
        for element, value in zip(elements(spec), values, strict=True):
            if element is None:
                assert value == -7
            else:
                assert bits.setdefault(element, value) == value, "one identity has two tags"
    assert len(set(bits.values())) == len(bits), "two identities have one tag"


def test_tagged_depends_on_all_that_makes_an_identity() -> None:
    dims = {"h": 64, "l": 2}
    spec = lk.Spec("[q] h", of="w", dims=dims, at={"l": 0})
    others = [spec.replace(of="v"), spec.replace(layout="[k] h"), spec.replace(at={"l": 1})]
    mine = tagged(spec, torch.int16)
    for other in others:
        assert not torch.equal(tagged(other, torch.int16), mine)
    assert not torch.equal(tagged(spec, torch.int16, seed=1), mine)
    assert torch.equal(tagged(spec.replace(layout="h [q]"), torch.int16).t(), mine)


def test_tagged_uses_all_bit_patterns_of_small_floats() -> None:
    values = tagged(lk.Spec("h", dims={"h": 2**14}), torch.bfloat16)
    assert torch.isnan(values).any()
    assert torch.isinf(values).any()
    assert len(values.view(torch.int16).unique()) > 2**12


@some
@given(r=randoms)
def test_convert_is_what_a_loop_over_elements_says(r: Random) -> None:
    one = world(r)
    sources, targets = side(r, one, target=False), side(r, one, target=True)
    assume(fits(sources) and fits(targets))
    tensors = {key: tagged(spec, torch.int32) for key, spec in sources.items()}
    before = {key: torch.full(spec.shape(), -5, dtype=torch.int32) for key, spec in targets.items()}
    known: dict[Any, int] = {}
    for key, spec in sources.items():
        for element, value in zip(elements(spec), tensors[key].reshape(-1).tolist(), strict=True):
            known.setdefault(element, value)
    result = convert(sources, tensors, targets, before)
    for key, spec in targets.items():
        empty = 0 if "zero" in spec.padding.values() else -5
        expected = [empty if element is None else known[element] for element in elements(spec)]
        assert result[key].reshape(-1).tolist() == expected, spec
        assert (before[key] == -5).all(), "convert wrote into what it was given"


def test_convert_refuses_what_has_no_source() -> None:
    dims = {"h": 4}
    half = lk.Spec("h/m", dims=dims, mesh={"m": (2, 0)})
    with pytest.raises(lk.LayoutError, match=r"'t'.*no source"):
        convert({"s": half}, {"s": torch.zeros(2)}, {"t": lk.Spec("h", dims=dims)}, {"t": torch.zeros(4)})


def test_convert_reads_the_first_of_replicas() -> None:
    spec = lk.Spec("h", dims={"h": 2})
    result = convert(
        {"a": spec, "b": spec}, {"a": torch.ones(2), "b": torch.zeros(2)}, {"t": spec}, {"t": torch.zeros(2)}
    )
    assert result["t"].tolist() == [1, 1]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.complex128], ids=str
)
def test_same_bytes_is_about_bytes(dtype: torch.dtype) -> None:
    raw = torch.arange(24 * dtype.itemsize, dtype=torch.uint8)
    one = (raw & 1 if dtype == torch.bool else raw).view(dtype).reshape(4, 6)
    assert_same_bytes(one, one.clone())
    assert_same_bytes(one.t(), one.t().contiguous())
    other = one.clone()
    other.view(torch.uint8)[2, 3 * dtype.itemsize] ^= 1
    with pytest.raises(AssertionError, match=r"w: 1 of 24 elements differ; the first at \(2, 3\): bytes"):
        assert_same_bytes(other, one, "w")


def test_same_bytes_tells_zero_from_minus_zero_and_knows_nan() -> None:
    nan = torch.tensor([float("nan"), 0.0])
    assert_same_bytes(nan, nan.clone())
    with pytest.raises(AssertionError, match="1 of 2 elements"):
        assert_same_bytes(nan, torch.tensor([float("nan"), -0.0]))


def test_same_bytes_compares_shape_and_dtype() -> None:
    with pytest.raises(AssertionError, match="shape"):
        assert_same_bytes(torch.zeros(2, 3), torch.zeros(3, 2))
    with pytest.raises(AssertionError, match="float32"):
        assert_same_bytes(torch.zeros(2), torch.zeros(2, dtype=torch.int32))
    assert_same_bytes(torch.zeros(0), torch.zeros(0))
    with pytest.raises(AssertionError, match="1 of 1"):
        assert_same_bytes(torch.tensor(1.0), torch.tensor(2.0))

# SPDX-License-Identifier: Apache-2.0
"""What a plan means: equal plans are equal, one element goes to many places, replicas, padding and inverses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import layout_kernels as lk

EQUAL = [
    ("(g [q:r k v] d) h", " ( g[q:r k:1 v] d)h "),
    ("o/tp h", "o/tp  h"),
]


@pytest.mark.parametrize(("one", "two"), EQUAL)
def test_equal_specs_make_equal_plans(one: str, two: str) -> None:
    dims = {"g": 2, "r": 2, "d": 2, "h": 4, "o": 4}
    plans = []
    for text, extra in ((one, {}), (two, {"pp": (4, 1)})):
        fields: dict[str, Any] = {"of": "w", "dims": dict(reversed(dims.items())) if extra else dims}
        specs = {r: lk.Spec(text, mesh={"tp": (2, r), **extra}, **fields) for r in range(2 if "tp" in text else 1)}
        plans.append(lk.compile(specs, {"t": lk.Spec(two.replace("/tp", ""), **fields)}))
    assert plans[0] == plans[1]
    assert plans[0].digest == plans[1].digest
    assert hash(plans[0]) == hash(plans[1])


def test_the_order_of_a_mapping_means_nothing_where_no_replica_is_chosen() -> None:
    dims = {"h": 4}
    specs = {tag: lk.Spec(f"[{tag}] h", dims=dims) for tag in ("a", "b", "c")}
    targets = {"t": lk.Spec("[c b a] h", dims=dims)}
    assert lk.compile(specs, targets) == lk.compile(dict(reversed(specs.items())), targets)


@pytest.mark.parametrize(
    "change",
    [
        {"of": "v"},
        {"at": {"l": 1}},
        {"dims": {"o": 4, "h": 5, "l": 2}},
        {"layout": "h o"},
        {"dtype": torch.int8},
        {"declared": "(o h)"},
    ],
    ids=str,
)
def test_another_spec_makes_another_digest(change: dict[str, Any]) -> None:
    spec = lk.Spec("o h", of="w", dims={"o": 4, "h": 4, "l": 2}, at={"l": 0})
    other = spec.replace(**change)
    assert lk.compile({"s": spec}, {"t": spec}).digest != lk.compile({"s": other}, {"t": other}).digest
    assert lk.compile({"s": spec}, {"t": spec}) != lk.compile({"s": spec}, {"u": spec})


def run(plan: lk.CopyPlan, sources: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> dict[str, list[int]]:
    targets = {key: torch.full(shape, -1) for key, shape in shapes.items()}
    plan.run({key: torch.tensor(values) for key, values in sources.items()}, targets)
    return {key: tensor.reshape(-1).tolist() for key, tensor in targets.items()}


def test_one_to_many() -> None:
    """Tied weights, a derived slice and a repeated head out of one source."""
    dims = {"n": 2, "h": 2}
    targets = {"tied": "n h", "turned": "h n", "first": lk.Spec("n/m h", mesh={"m": [0]}), "repeated": "(n 2) h"}
    plan = lk.compile({"s": "n h"}, targets, dims)
    shapes = {"tied": (2, 2), "turned": (2, 2), "first": (1, 2), "repeated": (4, 2)}
    assert run(plan, {"s": [[1, 2], [3, 4]]}, shapes) == {
        "tied": [1, 2, 3, 4],
        "turned": [1, 3, 2, 4],
        "first": [1, 2],
        "repeated": [1, 2, 1, 2, 3, 4, 3, 4],
    }


def test_the_first_replica_is_the_first_of_the_mapping() -> None:
    """Also where tensors of another pattern, which are planned together, stand around it."""
    dims = {"e": 2, "h": 2}
    tensors = {"A": ("h", 0), "B": ("1 h", 1), "C": ("h", 1), "D": ("h 1", 0)}
    specs = {key: lk.Spec(layout, dims=dims, at={"e": e}) for key, (layout, e) in tensors.items()}
    values: dict[str, Any] = {"A": [1, 1], "B": [[2, 2]], "C": [3, 3], "D": [[4], [4]]}
    for order, expected in {
        "ABCD": [1, 1, 2, 2],
        "DCBA": [4, 4, 3, 3],
        "BDAC": [4, 4, 2, 2],
        "CABD": [1, 1, 3, 3],
    }.items():
        plan = lk.compile({key: specs[key] for key in order}, {"t": lk.Spec("e h", dims=dims)}, replicas="first")
        assert run(plan, {key: values[key] for key in order}, {"t": (2, 2)}) == {"t": expected}, order


def test_the_order_of_replicas_is_part_of_a_plan() -> None:
    spec, targets = lk.Spec("h", dims={"h": 2}), {"t": lk.Spec("h", dims={"h": 2})}
    one = lk.compile({"a": spec, "b": spec}, targets, replicas="first")
    assert one != lk.compile({"b": spec, "a": spec}, targets, replicas="first")


def test_a_partial_replica_fills_what_is_left() -> None:
    dims = {"h": 4}
    sources = {"half": lk.Spec("h/m", dims=dims, mesh={"m": slice(1, 3)}), "whole": lk.Spec("h", dims=dims)}
    plan = lk.compile(sources, {"t": lk.Spec("h", dims=dims)}, replicas="first")
    assert run(plan, {"half": [8, 9], "whole": [1, 2, 3, 4]}, {"t": (4,)}) == {"t": [1, 8, 9, 4]}


def test_unused_counts_elements_and_padding_is_exempt() -> None:
    dims = {"h": 2, "i": (3, "i1"), "i1": 4}
    source = lk.Spec("[_:i pad:h]", dims=dims, padding={"pad": "keep"})
    plan = lk.compile({"s": source}, {"t": lk.Spec("i", dims={"i": 3})})
    assert plan.elements == 3
    half = lk.compile({"s": "h"}, {"t": lk.Spec("h/m", mesh={"m": (2, 0)})}, {"h": 2}, unused="allow")
    assert half.elements == 1


def test_the_inverse_reads_a_repeated_element_at_its_first_position() -> None:
    dims = {"a": 3}
    target = lk.Spec("(a/m 2)", dims=dims, mesh={"m": [2, 0, 1, 2]})
    inverse = lk.compile({"s": lk.Spec("a", dims=dims)}, {"t": target}).inverse()
    assert run(inverse, {"t": [20, 21, 0, 1, 10, 11, 22, 23]}, {"s": (3,)}) == {"s": [0, 10, 20]}
    inverse.check()


def test_the_inverse_leaves_the_padding_of_a_source_alone() -> None:
    source = lk.Spec("[pad _:a]", dims={"a": 2}, padding={"pad": "keep"})
    inverse = lk.compile({"s": source}, {"t": lk.Spec("a", dims={"a": 2})}).inverse()
    assert run(inverse, {"t": [7, 8]}, {"s": (3,)}) == {"s": [-1, 7, 8]}


def test_the_inverse_of_one_receiver_of_many_is_refused_by_name() -> None:
    plan = lk.compile({"whole": "h"}, {"half": lk.Spec("h/m", mesh={"m": (2, 0)})}, {"h": 4}, unused="allow")
    with pytest.raises(lk.LayoutError, match=r"'whole'.*h 2\.\.3"):
        plan.inverse()


@pytest.mark.parametrize("how", ["keep", "zero"])
def test_padding_of_a_target_is_kept_or_zeroed(how: str) -> None:
    dims = {"a": 2, "w": (3, "w1", "w0"), "w1": 2, "w0": 2}
    target = lk.Spec("([x pad] a) w", dims=dims, padding={"pad": how, "w": how})
    plan = lk.compile({"s": lk.Spec("[x] a w", dims={"a": 2, "w": 3})}, {"t": target})
    p = -1 if how == "keep" else 0
    assert run(plan, {"s": [[[1, 2, 3], [4, 5, 6]]]}, {"t": (4, 4)}) == {"t": [1, 2, 3, p, 4, 5, 6, p] + [p] * 8}


def test_dims_serve_the_specs_that_carry_none() -> None:
    plan = lk.compile(
        {"s": "a b", "o": lk.Spec("c", of="o", dims={"c": 9})},
        {"t": "b a", "o": lk.Spec("c", of="o", dims={"c": 9})},
        {"a": 2, "b": 3},
    )
    assert plan.sources["s"].shape() == (2, 3)
    assert plan.sources["o"].shape() == (9,)
    assert plan.elements == 15


def test_spec_dims_are_never_merged_with_those_of_the_plan() -> None:
    with pytest.raises(lk.LayoutError, match="axis 'b' has no size"):
        lk.compile({"s": lk.Spec("a b", dims={"a": 2})}, {"t": "b a"}, {"a": 2, "b": 3})


@pytest.mark.parametrize("side", ["source", "target"])
def test_cuts_hold_in_the_spec_that_declares_them(side: str) -> None:
    """The same names of parts may have other sizes on the other side, where both cuts nest."""
    coarse = lk.Spec("(x y) h", dims={"i": ("x", "y"), "x": 2, "y": 6, "h": 2})
    fine = lk.Spec("(y x) h", dims={"i": ("x", "y"), "x": 6, "y": 2, "h": 2})
    one, two = (coarse, fine) if side == "source" else (fine, coarse)
    plan = lk.compile({"s": one}, {"t": two})
    assert plan.elements == 24
    plan.check()


def test_shards_of_an_inner_part() -> None:
    """Both sides cut alike, one holds the inner part by shards: every coordinate of it, not only the first."""
    dims = {"i": ("ib", "is"), "ib": 3, "is": 4, "h": 2}
    shards = {r: lk.Spec("ib is/tp h", dims=dims, mesh={"tp": (2, r)}) for r in range(2)}
    for whole in ("(ib is) h", "(is ib) h", "i h", "is h ib"):
        plan = lk.compile(shards, {"t": lk.Spec(whole, dims=dims)})
        assert plan.elements == 24
        assert plan.inverse().elements == 24
    fixed = {x: lk.Spec("ib h", dims=dims, at={"is": x}) for x in range(4)}
    assert lk.compile(fixed, shards).elements == 24


def test_an_empty_plan_runs() -> None:
    plan = lk.compile({}, {})
    plan.run({}, {})
    plan.check()
    assert (plan.elements, plan.nbytes, len(plan.table)) == (0, 0, 0)


def test_nbytes_counts_target_bytes() -> None:
    dims = {"h": 4}
    source = lk.Spec("h", dims=dims, dtype=torch.float32)
    plan = lk.compile({"s": source}, {"t": lk.Spec("h", dims=dims, dtype=torch.bfloat16), "u": lk.Spec("h", dims=dims)})
    assert plan.nbytes == 4 * 2 + 4 * 4
    with pytest.raises(lk.LayoutError, match=r"'u'.*dtype"):
        _ = lk.compile({"s": lk.Spec("h", dims=dims)}, {"u": lk.Spec("h", dims=dims)}).nbytes


def test_a_part_of_a_plan_has_the_blocks_of_its_sources_alone() -> None:
    dims = {"h": 2}
    target = lk.Spec("[x y pad] h", dims=dims, padding={"pad": "zero"})
    plan = lk.compile({tag: lk.Spec(f"[{tag}] h", dims=dims) for tag in "xy"}, {"t": target})
    assert run(plan.part(["x"]), {"x": [[1, 2]]}, {"t": (3, 2)}) == {"t": [1, 2, -1, -1, -1, -1]}
    assert run(plan.part([]), {}, {"t": (3, 2)}) == {"t": [-1, -1, -1, -1, 0, 0]}
    with pytest.raises(lk.LayoutError, match="part"):
        plan.part(["x"]).check()


def test_offsets_past_two_to_the_thirty_first_are_whole_numbers() -> None:
    """Three quarters of a tebi-element: the table is exact, and planning counts no element."""
    dims = {"e": 384, "o": 2**15, "h": 2**16}
    plan = lk.compile(
        {"s": lk.Spec("e o h", dims=dims)},
        {r: lk.Spec("e/ep h o", dims=dims, mesh={"ep": (384, r)}) for r in range(384)},
    )
    assert plan.elements == 384 * 2**31
    assert sorted(plan.table.source_offset.tolist()) == [e * 2**31 for e in range(384)]
    plan.check()


def test_explain_tells_tensors_shapes_and_bytes() -> None:
    dims = {"e": 2, "i": 4, "h": 8}
    specs = {
        "experts": lk.Spec("e h ([gate up] i/etp)", of="mlp.fc1", dims=dims, mesh={"etp": (1, 0)}, dtype=torch.int16)
    }
    text = lk.compile(specs, {"w13": lk.Spec("e ([gate up] i) h", of="mlp.fc1", dims=dims)}).explain()
    for word in ("experts", "w13", "mlp.fc1", "e h ([gate up] i/etp)", "transpose", "128", "256"):
        assert word in text, f"{word!r} is not in:\n{text}"

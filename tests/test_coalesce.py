# SPDX-License-Identifier: Apache-2.0
"""Which blocks come out: the fewest, in one order; an interleave is one block and an identity one run."""

from __future__ import annotations

from typing import Any

import pytest

import layout_kernels as lk

Blocks = list[tuple[tuple[tuple[int, int, int], ...], int, int]]


def blocks(plan: lk.CopyPlan) -> Blocks:
    """(shape, source offset, target offset) of every block."""
    table = plan.table
    rows = zip(table.shape.tolist(), table.source_offset.tolist(), table.target_offset.tolist(), strict=True)
    return [(table.shapes[shape], source, target) for shape, source, target in rows]


def between(source: str, target: str, dims: dict[str, Any], **fields: Any) -> Blocks:
    return blocks(lk.compile({"s": lk.Spec(source, dims=dims, **fields)}, {"t": lk.Spec(target, dims=dims, **fields)}))


QKV = {"g": 4, "r": 3, "d": 4, "h": 4}
IDENTITIES = {
    "a matrix": ("o h", "o h", {"o": 4, "h": 4}),
    "a product": ("(o h)", "o h", {"o": 4, "h": 4}),
    "unequal segments": ("([q:(g r) k:g v:g] d) h", "([q:(g r) k:g v:g] d) h", QKV),
    "unequal segments inside": ("(g [q:r k v] d) h", "(g [q:r k v] d) h", QKV),
    "unequal segments, flat": ("[q:(g r d h) k:(g d h) v:(g d h)]", "([q:(g r) k:g v:g] d) h", QKV),
    "segments of nothing": ("[q:(z h) k:h] ", "[q:(z h) k:h]", {"z": 0, "h": 4}),
    "a cut on one side": ("(ib is) h", "i h", {"i": ("ib", "is"), "ib": 4, "is": 4, "h": 4}),
    "a cut within a cut": (
        "ib ix iy h",
        "i h",
        {"i": ("ib", "is"), "is": ("ix", "iy"), "ib": 2, "ix": 2, "iy": 4, "h": 4},
    ),
    "tags that nest": ("[x:[gate up] y:[gate up]] h", "[x:[gate up] y:[gate up]] h", {"h": 4}),
    "size one everywhere": ("1 o (1 h) x", "o x h", {"o": 4, "h": 4, "x": 1}),
}


@pytest.mark.parametrize(("source", "target", "dims"), IDENTITIES.values(), ids=list(IDENTITIES))
def test_an_identity_is_one_run(source: str, target: str, dims: dict[str, Any]) -> None:
    ((shape, first, second),) = between(source, target, dims)
    assert (len(shape), first, second) == (1, 0, 0)
    assert shape[0][1:] == (1, 1)


@pytest.mark.parametrize(
    "spread", ["(i [gate up]) h", "(i [gate up])", "([up gate] i)", "i h [gate up]", "e (i [gate up]) h"]
)
def test_an_interleave_of_single_elements_is_one_block(spread: str) -> None:
    dims = {"e": 3, "i": 4, "h": 4}
    packed = spread.replace("(i [gate up])", "([gate up] i)").replace("i h [gate up]", "[gate up] i h")
    shapes = between(packed.replace("[up gate]", "[gate up]"), spread, dims)
    assert len(shapes) == (2 if "[up gate]" in spread else 1)


def test_tags_that_step_evenly_forward_on_both_sides_merge() -> None:
    dims = {"g": 4, "d": 2}
    for order, count in {"q k v": 1, "k q v": 2, "v k q": 3}.items():
        assert len(between("[q:(g d) k:(g d) v:(g d)]", f"(g [{order}] d)", dims)) == count, order


def test_a_transpose_is_one_block_with_two_digits() -> None:
    assert between("o h", "h o", {"o": 4, "h": 4}) == [(((4, 1, 4), (4, 4, 1)), 0, 0)]
    assert between("e o h", "e h o", {"e": 2, "o": 3, "h": 3}) == [(((2, 9, 9), (3, 1, 3), (3, 3, 1)), 0, 0)]


def test_experts_and_shards_that_lie_side_by_side_are_one_block() -> None:
    """A block of the group for all tensors: one shape, one row a pair of tensors."""
    dims = {"l": 3, "e": 4, "i": 4, "h": 4}
    sources = {(x, e): lk.Spec("([gate up] i) h", dims=dims, at={"l": x, "e": e}) for x in range(3) for e in range(4)}
    targets = {x: lk.Spec("e h (i [gate up])", dims=dims, at={"l": x}) for x in range(3)}
    plan = lk.compile(sources, targets)
    assert (len(plan.table), len(plan.table.shapes)) == (12, 1)
    fused = lk.compile(
        {r: lk.Spec("e/ep h i", dims=dims, mesh={"ep": (2, r)}, at={"l": 0}) for r in range(2)},
        {"t": lk.Spec("e h i", dims=dims, at={"l": 0})},
    )
    assert [shape for shape, _, _ in blocks(fused)] == [((32, 1, 1),)] * 2


def test_a_block_is_read_in_the_order_of_the_target() -> None:
    """Offsets rise, so that a backend writes forward; blocks of one target come together."""
    dims = {"o": 6, "h": 6}
    plan = lk.compile(
        {r: lk.Spec("o h/m", dims=dims, mesh={"m": (3, r)}) for r in range(3)},
        {r: lk.Spec("o/m h", dims=dims, mesh={"m": (2, r)}) for r in range(2)},
    )
    turned = lk.compile(
        {
            (tag, x): lk.Spec(f"[{tag}] h", dims={"l": 3, "h": 6}, at={"l": x})
            for tag in ("gate", "up")
            for x in range(3)
        },
        {x: lk.Spec("[up gate] h", dims={"l": 3, "h": 6}, at={"l": x}) for x in range(3)},
    )
    for table in (plan.table, turned.table):
        order = list(zip(table.target.tolist(), table.target_offset.tolist(), strict=True))
        assert order == sorted(order)
        assert len(order) == 6

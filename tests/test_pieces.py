# SPDX-License-Identifier: Apache-2.0
"""What a tensor holds: pieces against positions written out by hand. Square and odd sizes alike."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import layout_kernels as lk
from layout_kernels.pieces import Piece, gather, pieces

Held = dict[tuple[int, int], str]  # (tensor, offset) -> "tags | coordinates", or how it is padding


def digits_of(piece: Piece) -> list[list[tuple[str, int, tuple[int, int]]]]:
    """Per digit its choices: axis, what the coordinate moves by, what the place moves by."""
    found = []
    for axis, comb in piece.axes.items():
        for digit in comb.digits:
            found.append([(axis, x * digit.weight, tuple(x * s for s in digit.payload)) for x in range(digit.extent)])
    for extent, move in piece.uncounted:
        found.append([("", 0, tuple(x * s for s in move)) for x in range(extent)])
    return found  # type: ignore[return-value]


def held(specs: dict[str, lk.Spec], *, repeats: bool = True) -> tuple[Held, int]:
    """Every place that the pieces name, and how many pieces there are."""
    found: Held = {}
    count = 0
    groups, _ = gather(specs, None, {})
    for piece in [piece for group in groups for piece in pieces(group, repeats=repeats)]:
        count += 1
        for choice in itertools.product(*digits_of(piece)):
            coordinates = {axis: comb.start for axis, comb in piece.axes.items()}
            place = list(piece.place)
            for comb in piece.axes.values():
                place = [place[0] + comb.origin[0], place[1] + comb.origin[1]]
            for axis, by, (tensor, offset) in choice:
                if axis:
                    coordinates[axis] += by
                place = [place[0] + tensor, place[1] + offset]
            assert tuple(place) not in found, f"two elements at {place}"
            found[place[0], place[1]] = piece.padding or written(piece.tags, coordinates)
    return found, count


def written(tags: frozenset[str], coordinates: dict[str, int]) -> str:
    return " ".join([*sorted(tags), *(f"{axis}{value}" for axis, value in sorted(coordinates.items()))])


def one(layout: str, dims: dict[str, Any], *, repeats: bool = True, **fields: Any) -> list[str]:
    """The elements of one tensor by offset."""
    found, _ = held({"t": lk.Spec(layout, dims=dims, **fields)}, repeats=repeats)
    assert sorted(found) == [(0, offset) for offset in range(len(found))] or not repeats
    return [found[place] for place in sorted(found)]


def test_product_is_row_major() -> None:
    assert one("(a b)", {"a": 2, "b": 2}) == ["a0 b0", "a0 b1", "a1 b0", "a1 b1"]
    assert one("a b", {"a": 2, "b": 2}) == one("(a b)", {"a": 2, "b": 2})
    assert one("b a", {"a": 2, "b": 2}) == ["a0 b0", "a1 b0", "a0 b1", "a1 b1"]


def test_concatenation_of_unequal_segments() -> None:
    assert one("(g [q:r k]) ", {"g": 2, "r": 2}) == ["q g0 r0", "q g0 r1", "k g0", "q g1 r0", "q g1 r1", "k g1"]
    assert one("[_:a x:[y:b y]]", {"a": 1, "b": 2}) == ["a0", "x y b0", "x y b1", "x y"]


def test_a_scalar_and_a_dimension_of_one() -> None:
    assert one("", {}) == [""]
    assert one("1 a 1", {"a": 2}) == ["a0", "a1"]
    assert one("a", {"a": 1}) == ["a0"], "an axis of one is an axis"


@pytest.mark.parametrize(
    ("mesh", "expected"),
    [
        ((3, 1), [2, 3]),
        ((1, 0), [0, 1, 2, 3, 4, 5]),
        (slice(1, 5), [1, 2, 3, 4]),
        (slice(6, 6), []),
        ([4, 0, 1], [4, 0, 1]),
        ([], []),
    ],
    ids=str,
)
def test_selections(mesh: Any, expected: list[int]) -> None:
    assert one("a/m", {"a": 6}, mesh={"m": mesh}) == [f"a{x}" for x in expected]


def test_a_shard_may_cut_through_a_head() -> None:
    """Raw rows of a product: three boxes for a head, whole windows and a tail."""
    spec = lk.Spec("(g d)/m", dims={"g": 4, "d": 3}, mesh={"m": slice(2, 10)})
    found, count = held({"t": spec})
    assert [found[0, x] for x in range(8)] == ["d2 g0", *(f"d{d} g{g}" for g in (1, 2) for d in range(3)), "d0 g3"]
    assert count == 3


def test_a_selection_of_a_concatenation_cuts_segments() -> None:
    assert one("[q:a k:b v]/m", {"a": 3, "b": 2}, mesh={"m": (2, 0)}) == ["q a0", "q a1", "q a2"]
    assert one("[q:a k:b v]/m", {"a": 3, "b": 2}, mesh={"m": (2, 1)}) == ["k b0", "k b1", "v"]
    assert one("[q:a/m k:b v]", {"a": 4, "b": 2}, mesh={"m": (2, 1)}) == ["q a2", "q a3", "k b0", "k b1", "v"]


def test_a_selection_inside_a_selection() -> None:
    assert one("((x)/a)/b", {"x": 12}, mesh={"a": (3, 1), "b": (2, 1)}) == ["x6", "x7"]
    assert one("((x)/a)/b", {"x": 12}, mesh={"a": [9, 3, 5, 1], "b": [2, 0]}) == ["x5", "x9"]


def test_int_and_lists_repeat_in_targets_and_are_read_at_the_first_copy() -> None:
    assert one("(a 2)", {"a": 2}) == ["a0", "a0", "a1", "a1"]
    assert one("(2 a)", {"a": 2}) == ["a0", "a1", "a0", "a1"]
    assert one("a/m", {"a": 4}, mesh={"m": [2, 0, 2]}) == ["a2", "a0", "a2"]
    for layout, places in {"(a 2)": [0, 2], "(2 a)": [0, 1]}.items():
        found, _ = held({"t": lk.Spec(layout, dims={"a": 2})}, repeats=False)
        assert found == {(0, place): f"a{x}" for x, place in enumerate(places)}
    found, _ = held({"t": lk.Spec("a/m", dims={"a": 4}, mesh={"m": [2, 3, 0, 2, 3]})}, repeats=False)
    assert found == {(0, 0): "a2", (0, 1): "a3", (0, 2): "a0"}


def test_coordinates_count_on_the_whole_axis() -> None:
    cut = {"i": ("ib", "is"), "ib": 2, "is": 3}
    assert one("ib is", cut) == one("i", cut) == [f"i{x}" for x in range(6)]
    assert one("is ib", cut) == ["i0", "i3", "i1", "i4", "i2", "i5"]
    assert one("(ib [gate up] is)", cut)[:6] == ["gate i0", "gate i1", "gate i2", "up i0", "up i1", "up i2"]


def test_a_part_without_the_others_is_an_axis_of_its_own() -> None:
    cut = {"i": ("ib", "is"), "ib": 2, "is": 3}
    assert one("[scale:ib weight:(ib is)]", cut)[:4] == ["scale ib0", "scale ib1", "weight i0", "weight i1"]


def test_parts_may_stand_apart_and_in_at() -> None:
    cut = {"i": ("ib", "is"), "ib": 2, "is": 3}
    found, _ = held({str(x): lk.Spec("is", dims=cut, at={"ib": x}) for x in range(2)})
    assert [found[place] for place in sorted(found)] == [f"i{x}" for x in range(6)]
    assert one("ib/m [x:is]", cut, mesh={"m": (2, 1)}) == ["x i3", "x i4", "x i5"]


def test_cuts_nest() -> None:
    cut = {"i": ("a", "b"), "b": ("c", "d"), "a": 2, "c": 2, "d": 2}
    assert one("d a c", cut) == [f"i{4 * a + 2 * c + d}" for d in range(2) for a in range(2) for c in range(2)]


def test_the_end_of_a_short_axis_is_padding() -> None:
    short = {"i": (5, "i1", "i0"), "i1": 3, "i0": 2}
    assert one("i", short) == ["i0", "i1", "i2", "i3", "i4", "keep"]
    assert one("i0 i1", short) == ["i0", "i2", "i4", "i1", "i3", "keep"]
    assert one("i", short, padding={"i": "zero"})[-1] == "zero"
    assert one("i1 i0 a", short | {"a": 2})[-2:] == ["keep", "keep"]


def test_selections_cut_the_padded_length() -> None:
    """96 in 128 at tp 2 is 64 + 32, in small: 6 in 8 is 4 + 2."""
    short = {"i": (6, "i1", "i0"), "i1": 4, "i0": 2}
    assert one("i/tp", short, mesh={"tp": (2, 0)}) == ["i0", "i1", "i2", "i3"]
    assert one("i/tp", short, mesh={"tp": (2, 1)}) == ["i4", "i5", "keep", "keep"]
    assert one("i1/tp i0", short, mesh={"tp": (2, 1)}) == ["i4", "i5", "keep", "keep"]


def test_tiles_of_every_rank_are_a_short_axis_inside_a_cut() -> None:
    tiles = {"i": ("t", "il"), "il": (3, "l1", "l0"), "t": 2, "l1": 2, "l0": 2}
    assert one("t/tp l1 l0", tiles, mesh={"tp": (2, 0)}) == ["i0", "i1", "i2", "keep"]
    assert one("t/tp l1 l0", tiles, mesh={"tp": (2, 1)}) == ["i3", "i4", "i5", "keep"]
    assert one("t l0 l1", tiles) == ["i0", "i2", "i1", "keep", "i3", "i5", "i4", "keep"]


def test_padding_tags() -> None:
    assert one("[_:a pad:p]", {"a": 2, "p": 2}, padding={"pad": "keep"}) == ["a0", "a1", "keep", "keep"]
    assert one("[pad _:a pad]", {"a": 1}, padding={"pad": "zero"}) == ["zero", "a0", "zero"]
    assert one("[_:a pad:p]", {"a": 1, "p": 2}) == ["a0", "pad p0", "pad p1"], "an undeclared tag is data"
    assert one("[x:[y pad] y]", {}, padding={"pad": "zero"}) == ["x y", "zero", "y"]


def test_tensors_of_one_pattern_are_one_group() -> None:
    """A thousand experts are as many pieces as one, and a missing one splits the grid."""
    dims = {"l": 10, "e": 100, "h": 4}
    specs = {f"{x} {e}": lk.Spec("h", dims=dims, at={"l": x, "e": e}) for x in range(10) for e in range(100)}
    assert len(gather(specs, None, {})[0]) == 1
    groups, keys = gather({key: spec for key, spec in specs.items() if key != "4 50"}, None, {})
    assert len(groups) <= 4
    assert sorted(keys) == sorted(set(specs) - {"4 50"})


def test_groups_number_their_tensors() -> None:
    specs = {
        (e, x): lk.Spec("h", dims={"l": 2, "e": 3, "h": 1}, at={"l": x, "e": e}) for e in (2, 0, 1) for x in (1, 0)
    }
    groups, keys = gather(specs, None, {})
    found, _ = held(specs)
    assert len(groups) == 1
    assert {keys[tensor]: what for (tensor, _), what in found.items()} == {(e, x): f"e{e} h0 l{x}" for e, x in specs}


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("a z", []),
        ("z", []),
        ("(z a)/m", []),
        ("z/m", []),
        ("[q:z k:a]/m", ["k a1"]),
        ("[q:(a z) k:a]", ["k a0", "k a1"]),
    ],
)
def test_a_size_of_nothing_is_legal_and_empty(layout: str, expected: list[str]) -> None:
    assert one(layout, {"a": 2, "z": 0}, mesh={"m": (2, 1)}) == expected


def test_strides_of_a_view_are_followed() -> None:
    spec = lk.Spec("a b", dims={"a": 2, "b": 2})
    groups, _ = gather({"t": spec}, None, {"t": (1, 10)})
    (piece,) = pieces(groups[0], repeats=True)
    assert {axis: comb.digits[0].payload for axis, comb in piece.axes.items()} == {"a": (0, 1), "b": (0, 10)}

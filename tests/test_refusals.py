# SPDX-License-Identifier: Apache-2.0
"""Everything that planning refuses: the message names the tensor, the numbers and the nearest fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import layout_kernels as lk
from layout_kernels import Spec

DIMS = {"o": 4, "h": 4, "e": 2, "i": 4, "g": 2, "d": 2}
Side = Mapping[str, Any]


def refused(sources: Side, targets: Side, *words: str, dims: Any = DIMS, **choices: Any) -> None:
    with pytest.raises(lk.LayoutError) as error:
        lk.compile(sources, targets, dims, **choices)
    for word in words:
        assert word in str(error.value), f"{word!r} is not in: {error.value}"


# -- what has no source, what nobody wants ---------------------------------------------------------------------------


def test_an_unknown_logical_tensor() -> None:
    source, target = Spec("o h", of="layers.attention.qkv"), Spec("o h", of="layers.attention.qvk")
    refused(
        {"a": source},
        {"weight": target},
        "target 'weight'",
        "'layers.attention.qvk'",
        "nearest is 'layers.attention.qkv'",
    )
    refused({"a": source}, {}, "source 'a'", "no target", "h 0..3, o 0..3", "unused='allow'")


def test_a_missing_expert() -> None:
    experts = {f"experts.{e}": Spec("i h", of="fc1", at={"e": e}) for e in range(2)}
    del experts["experts.1"]
    refused(experts, {"w13": Spec("e i h", of="fc1")}, "target 'w13'", "'fc1'", "e 1, h 0..3, i 0..3", "e 0")


def test_a_missing_rank() -> None:
    shards = {f"rank{r}": Spec("o/tp h", mesh={"tp": (4, r)}) for r in (0, 1, 3)}
    refused(shards, {"w": "o h"}, "target 'w'", "h 0..3, o 2")
    refused({"w": "o h"}, shards, "source 'w'", "no target", "h 0..3, o 2")


def test_a_missing_tag() -> None:
    refused({"gate": "[gate] i"}, {"fc1": "[gate up] i"}, "target 'fc1'", "[up]", "i 0..3", "[gate]")
    refused({"s": "[q k] h"}, {"t": "[q key] h"}, "target 't'", "[key]", "[k]")


def test_other_axes_are_another_part() -> None:
    """Nothing broadcasts by name; an axis of one counts as well."""
    refused({"s": "g d"}, {"t": "g d x"}, "target 't'", "other axes: d g", dims={**DIMS, "x": 1})
    refused({"s": "h"}, {"t": "h x"}, "target 't'", "h", dims={**DIMS, "x": 3})


def test_an_undeclared_tag_is_data() -> None:
    refused(
        {"s": "[token:o]"}, {"t": "[token:o pad:p]"}, "target 't'", "[pad]", "p 0..1", "padding", dims={**DIMS, "p": 2}
    )
    refused({"s": "[token:o pad:p]"}, {"t": "[token:o]"}, "source 's'", "[pad]", "p 0..1", dims={**DIMS, "p": 2})


def test_unwanted_elements_name_their_coordinates() -> None:
    half = Spec("o/m h", mesh={"m": slice(0, 3)})
    refused({"w": "o h"}, {"half": half}, "source 'w'", "o 3", "h 0..3", "unused='allow'")
    assert lk.compile({"w": "o h"}, {"half": half}, DIMS, unused="allow").elements == 12


# -- held twice ------------------------------------------------------------------------------------------------------


def test_two_sources_of_one_element() -> None:
    refused({"one": "o h", "two": "o h"}, {"t": "o h"}, "'one'", "'two'", "o 0..3", "replicas='first'")
    overlap = {"a": Spec("o/m h", mesh={"m": slice(0, 3)}), "b": Spec("o/m h", mesh={"m": slice(2, 4)})}
    refused(overlap, {"t": "o h"}, "'a'", "'b'", "o 2", "replicas='first'")


def test_two_sources_of_an_element_that_nobody_wants() -> None:
    """Two tensors named alike by mistake are caught wherever they lead."""
    sources = {"one": Spec("o", of="x"), "two": Spec("o", of="x"), "w": Spec("o", of="w")}
    refused(sources, {"t": Spec("o", of="w")}, "'one'", "'two'", "'x'", unused="allow")


@pytest.mark.parametrize(
    "layout", ["o o", "(o h) o", "[q:o k:(o o)]", "[q:h q:h]", "[q q]", "[_:h _:h]", "(o [x:o y:h])", "o [x:o y:h]"]
)
def test_an_axis_or_a_tag_set_twice(layout: str) -> None:
    refused({"twice": layout}, {"t": "o h"}, "'twice'", "twice", unused="allow")
    refused({"s": "o h"}, {"twice": layout}, "'twice'", "twice", unused="allow")


def test_a_part_beside_its_whole() -> None:
    cut = {"i": ("ib", "is"), "ib": 2, "is": 2, "h": 2}
    for layout in ("i ib", "(i is) h", "i ib is"):
        refused({"twice": layout}, {"t": "i"}, "'twice'", "'i'", "twice", dims=cut)
    refused({"s": Spec("i", at={"ib": 0})}, {"t": "i"}, "'s'", "'i'", "twice", dims=cut)
    refused({"s": Spec("ib is", at={"i": 0})}, {"t": "i"}, "'s'", "'i'", "twice", dims=cut)


def test_the_same_tags_over_disjoint_ranges_are_fine() -> None:
    halves = Spec("[x:h/a x:h/b] ", mesh={"a": (2, 1), "b": (2, 0)})
    assert lk.compile({"s": halves}, {"t": "[x] h"}, DIMS).elements == 4


def test_a_list_with_repeats_in_a_source() -> None:
    listed = Spec("o/m", mesh={"m": [0, 1, 2, 3, 1]})
    refused({"slots": listed}, {"t": "o"}, "source 'slots'", "'m'", "[0, 1, 2, 3, 1]", "target")
    assert lk.compile({"s": "o"}, {"slots": listed}, DIMS).elements == 5


# -- sizes, cuts, selections -----------------------------------------------------------------------------------------


def test_an_indivisible_shard() -> None:
    shards = {f"rank{r}": Spec("o/tp h", mesh={"tp": (3, r)}) for r in range(3)}
    refused(shards, {"t": "o h"}, "'rank0'", "'o/tp'", "4", "3")
    refused({"t": "o h"}, shards, "'rank0'", "4", "3")
    with pytest.raises(lk.LayoutError, match=r"4 positions.*3 equal chunks"):
        shards["rank1"].shape(DIMS)


def test_a_selection_out_of_range() -> None:
    for entry, words in {(2, 2): ("(2, 2)",), (0, 0): ("(0, 0)",), (2, -1): ("-1",)}.items():
        with pytest.raises(lk.LayoutError) as error:
            Spec("o/tp", mesh={"tp": entry})
        assert all(word in str(error.value) for word in ("'tp'", *words))
    for entry in (slice(0, 5), [3, 4], [0, 9]):
        refused({"s": Spec("o/m", mesh={"m": entry})}, {"t": "o"}, "'s'", "'o/m'", "of only 4")


@pytest.mark.parametrize(
    "entry",
    [
        slice(3, 1),
        slice(-2, None),
        slice(None, 2),
        slice(0, 4, 2),
        [-1],
        [0.5],
        [True],
        "01",
        3,
        None,
        (2,),
        (2, 1, 0),
        (2.0, 1.0),
        (True, False),
    ],
    ids=repr,
)
def test_a_malformed_selection(entry: Any) -> None:
    with pytest.raises(lk.LayoutError, match="'tp'"):
        Spec("o/tp", mesh={"tp": entry})


def test_a_mesh_entry_that_is_not_given() -> None:
    refused({"s": Spec("o/tp", mesh={"pp": (2, 0)})}, {"t": "o"}, "'s'", "'tp'", "pp")
    assert Spec("o", mesh={"pp": (3, 1)}).shape(DIMS) == (4,), "entries that a layout does not use are ignored"


def test_an_axis_without_a_size() -> None:
    refused(
        {"s": "gate_width h"},
        {"t": "h"},
        "'s'",
        "'gate_width'",
        "nearest is 'gate_widths'",
        dims={"gate_widths": 2, "h": 2},
    )
    refused({"s": "h"}, {"t": "h"}, "'s'", "'h'", dims=None)
    refused({"s": Spec("h", at={"layer": 1})}, {"t": "h"}, "'layer'", "nearest is 'layers'", dims={"layers": 2, "h": 2})


def test_at_out_of_range_or_beside_the_layout() -> None:
    refused({"s": Spec("h", at={"e": 2})}, {"t": "e h"}, "'s'", "e=2", "2 positions")
    refused({"s": Spec("e h", at={"e": 0})}, {"t": "e h"}, "'s'", "'e'", "'e h'", "at")


@pytest.mark.parametrize(("one", "two"), [(4, 5), (4, 0), (0, 4), (1, 4)])
def test_one_axis_has_one_size(one: int, two: int) -> None:
    sources, targets = {"s": Spec("o h", dims={"o": 2, "h": one})}, {"t": Spec("o h", dims={"o": 2, "h": two})}
    refused(sources, targets, "'s'", "'t'", "'h'", str(one), str(two), unused="allow")


def test_a_short_axis_has_the_size_that_counts() -> None:
    short = {"w": (3, "w1", "w0"), "w1": 2, "w0": 2}
    refused({"s": Spec("w", dims={"w": 4})}, {"t": Spec("w", dims=short)}, "'w'", "3", "4", unused="allow")
    assert lk.compile({"s": Spec("w", dims={"w": 3})}, {"t": Spec("w", dims=short)}).elements == 3


@pytest.mark.parametrize("unlike", [(2, 3), (4, 3)])
def test_cuts_that_do_not_nest(unlike: tuple[int, int]) -> None:
    size = unlike[0] * unlike[1]
    one = Spec("is ib", dims={"i": ("ib", "is"), "ib": unlike[0], "is": unlike[1]})
    two = Spec("is ib", dims={"i": ("ib", "is"), "ib": unlike[1], "is": unlike[0]})
    refused({"one": one}, {"two": two}, "'one'", "'two'", "'i'", "nest", str(unlike[0]), str(unlike[1]))
    assert lk.compile({"one": one}, {"t": Spec("i", dims={"i": size})}).elements == size


@pytest.mark.parametrize(
    ("dims", "words"),
    [
        ({"i": ("a", "b"), "j": ("b", "c"), "a": 2, "b": 2, "c": 2}, ("'b'", "'i'", "'j'")),
        ({"i": ("a", "b"), "a": 2}, ("'i'", "'b'")),
        ({"i": ("i", "b"), "b": 2}, ("'i'", "itself")),
        ({"i": ("j", "b"), "j": ("i", "b"), "b": 2}, ("'i'", "itself")),
        ({"i": ("a", "a"), "a": 2}, ("'i'",)),
        ({"i": (9, "a", "b"), "a": 2, "b": 4}, ("'i'", "9", "8")),
        ({"i": (4,)}, ("'i'",)),
        ({"i": ()}, ("'i'",)),
        ({"i": -1}, ("'i'", "-1")),
        ({"i": 2.0}, ("'i'", "2.0")),
        ({"i": True}, ("'i'",)),
        ({"i": None}, ("'i'",)),
        ({"i": "4"}, ("'i'",)),
        ({"i": (2, 3)}, ("'i'",)),
    ],
    ids=repr,
)
def test_dims_that_make_no_sense(dims: dict[str, Any], words: tuple[str, ...]) -> None:
    refused({"s": "i"}, {"t": "i"}, *words, dims=dims)
    with pytest.raises(lk.LayoutError, match=words[0]):
        Spec("i", dims=dims).shape()


def test_a_cut_thousands_deep_is_refused_not_overflowed() -> None:
    dims: dict[str, Any] = {f"a{n}": (f"a{n + 1}", f"b{n}") for n in range(5000)}
    refused({"s": "a0"}, {"t": "a0"}, "a", dims=dims | {f"b{n}": 1 for n in range(5000)} | {"a5000": 1})


@pytest.mark.parametrize("size", [2**40, 2**62, 2**70])
def test_more_elements_than_can_be_addressed(size: int) -> None:
    refused({"huge": "o h"}, {"t": "h o"}, "'huge'", str(size), dims={"o": size, "h": size})


def test_a_line_of_text_does_not_take_all_memory() -> None:
    lists = [f"[{' '.join(f'{letter}{n}' for n in range(60))}]" for letter in "uvwxy"]
    refused({"bomb": " ".join(lists)}, {"t": "h"}, "'bomb'")
    refused({"bomb": f"({' '.join(lists)})"}, {"t": "h"}, "'bomb'")
    refused({"s": "h"}, {"bomb": f"({' '.join(lists)})"}, "'bomb'")

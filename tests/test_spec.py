# SPDX-License-Identifier: Apache-2.0
"""What a Spec says about itself, also one that comes out of another process as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

import layout_kernels as lk
from layout_kernels import Spec

DIMS = {"o": 4, "h": 4, "e": 2, "i": 4, "g": 2, "d": 2}
Side = Mapping[str, Any]


def refused(sources: Side, targets: Side, *words: str, dims: Any = DIMS, **choices: Any) -> None:
    with pytest.raises(lk.LayoutError) as error:
        lk.compile(sources, targets, dims, **choices)
    for word in words:
        assert word in str(error.value), f"{word!r} is not in: {error.value}"


def test_declared_holds_as_many_elements() -> None:
    wrong = Spec("e h ([gate up] i)", declared="h (e i)")
    refused({"s": wrong}, {"t": "[gate up] e h i"}, "'s'", "'h (e i)'", "32", "64")
    right = Spec("e h ([gate up] i)", declared="h (e [gate up] i)")
    assert right.shape(DIMS) == (4, 16)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"padding": {"pad": "zeros"}}, "'zeros'"),
        ({"padding": {"pad": None}}, "'pad'"),
        ({"at": {"e": -1}}, "-1"),
        ({"at": {"e": 1.0}}, "'e'"),
        ({"dtype": "bfloat16"}, "bfloat16"),
        ({"declared": 4}, "4"),
        ({"declared": "(h"}, "never closed"),
        ({"dims": 5}, "5"),
        ({"mesh": [1]}, "[1]"),
        ({"at": [1]}, "[1]"),
        ({"padding": "zero"}, "zero"),
        ({"of": 7}, "7"),
    ],
    ids=repr,
)
def test_a_malformed_spec(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(lk.LayoutError) as error:
        Spec("[pad] h", **fields)
    assert word in str(error.value)


def test_choices_are_words() -> None:
    for name in ("unused", "replicas"):
        with pytest.raises(lk.LayoutError, match=f"{name} is 'ignore': 'refuse' or"):
            lk.compile({}, {}, **{name: "ignore"})


# -- out of another process -----------------------------------------------------------------------------------

GOOD = {
    "layout": "e/ep h",
    "of": "w",
    "dims": {"e": 4, "h": [3, "h1"], "h1": 4},
    "mesh": {"ep": [2, 1]},
    "at": {},
    "declared": None,
    "dtype": "bfloat16",
    "padding": {"h": "zero"},
}


def test_json_round_trip() -> None:
    spec = Spec.from_json(GOOD)
    assert spec == Spec(
        "e/ep h",
        of="w",
        dims={"e": 4, "h": (3, "h1"), "h1": 4},
        mesh={"ep": (2, 1)},
        dtype=torch.bfloat16,
        padding={"h": "zero"},
    )
    assert spec.to_json() == GOOD
    for entry in (slice(0, 2), [3, 1]):
        other = spec.replace(mesh={"ep": entry}, at={"l": 3}, declared="h e/ep")
        assert Spec.from_json(other.to_json()) == other


@pytest.mark.parametrize(
    "change",
    [
        {"layout": None},
        {"layout": "(e"},
        {"layout": 3},
        {"layouts": "e"},
        {"of": 3},
        {"dims": [4]},
        {"dims": {"e": "4"}},
        {"dims": {"e": 4.5}},
        {"dims": {"e": [4.5, "h"]}},
        {"mesh": ["ep"]},
        {"mesh": {"ep": 2}},
        {"mesh": {"ep": [2, 2]}},
        {"mesh": {"ep": [2, 1, 0]}},
        {"mesh": {"ep": {"slice": [2, 1]}}},
        {"mesh": {"ep": {"slice": [0, 1], "positions": [1]}}},
        {"mesh": {"ep": {"positions": [0, "1"]}}},
        {"mesh": {"ep": {"positions": 4}}},
        {"at": [1]},
        {"at": {"l": "0"}},
        {"declared": 5},
        {"dtype": "floaty"},
        {"dtype": "nn"},
        {"dtype": 16},
        {"padding": "zero"},
        {"padding": {"h": 0}},
        {"padding": {"h": ["zero"]}},
    ],
    ids=repr,
)
def test_malformed_json_is_a_layout_error(change: dict[str, Any]) -> None:
    with pytest.raises(lk.LayoutError):
        Spec.from_json(GOOD | change)


@pytest.mark.parametrize("data", [None, [], "e h", 3, {}, {"of": "w"}], ids=repr)
def test_json_that_is_no_spec(data: Any) -> None:
    with pytest.raises(lk.LayoutError, match="layout"):
        Spec.from_json(data)


def test_a_spec_never_changes() -> None:
    positions, dims = [3, 1], {"e": 4}
    spec = Spec("e/m", dims=dims, mesh={"m": positions})
    before = spec.to_json()
    positions.append(0)
    dims["e"] = 9
    spec.to_json()["mesh"]["m"]["positions"].append(2)
    assert spec.to_json() == before
    assert spec.shape() == (2,)
    with pytest.raises(AttributeError, match="replace"):
        spec.of = "other"
    assert hash(spec) == hash(Spec("e/m", dims={"e": 4}, mesh={"m": [3, 1]}))

# SPDX-License-Identifier: Apache-2.0
"""Messages of other processes are read by a schema; the state of a receiver; the report."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
import torch
import toy

from layout_kernels import LayoutError
from layout_kernels.sync.holdings import Holdings, from_bytes, pack_message, parse_message, take_stock, to_bytes
from layout_kernels.sync.report import SyncReport, readable
from layout_kernels.sync.state import Record


def message(**changes: Any) -> bytes:
    held = take_stock(toy.trainer_specs(0), toy.trainer_tensors(0, 1))
    plain = json.loads(zlib.decompress(to_bytes(Holdings("trainer", held))))
    return pack_message(plain | changes)


def test_holdings_come_back_as_they_went() -> None:
    for specs, tensors, role in (
        (toy.trainer_specs(0), toy.trainer_tensors(0, 1), "trainer"),
        (toy.rollout_specs(1), toy.rollout_tensors(1), "rollout"),
    ):
        said = Holdings(role, take_stock(specs, tensors), {"bucket_bytes": 64})
        assert from_bytes(to_bytes(said)) == said


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"role": "observer"},
        {"options": 3},
        {"error": None},
        {"specs": None},
        {"specs": [{"layout": "("}]},
        {"specs": [3]},
        {"tensors": [["a", 99, {}, [1], "bfloat16"]]},
        {"tensors": [["a", -1, {}, [1], "bfloat16"]]},
        {"tensors": [["a", 0, {}, ["x"], "bfloat16"]]},
        {"tensors": [["a", 0, {}, [1, 2, 3, 4], "bfloat16"]]},
        {"tensors": [["a", 0, {}, [64, 16], "Tensor"]]},
        {"tensors": [["a", 0]]},
        {"tensors": [3]},
    ],
)
def test_a_message_that_lies_is_refused(changes: dict[str, Any]) -> None:
    assert from_bytes(message())
    with pytest.raises(LayoutError):
        from_bytes(message(**changes))


@pytest.mark.parametrize("data", [b"", b"x", zlib.compress(b"[]"), zlib.compress(b"{"), zlib.compress(b"[" * 100000)])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(LayoutError, match="a message that is no JSON"):
        parse_message(data)


def test_a_tensor_that_is_not_what_its_spec_says() -> None:
    specs, tensors = toy.trainer_specs(0), toy.trainer_tensors(0, 1)
    for name, tensor, match in (
        ("layer.norm", torch.zeros(3), r"tensor 'layer.norm' has shape \(3,\); 'h' wants \(16,\)"),
        ("layer.experts", torch.zeros(64, 16).t(), "tensor 'layer.experts' has a declared shape, so it must be contig"),
    ):
        with pytest.raises(LayoutError, match=match):
            take_stock(specs, tensors | {name: tensor})
    with pytest.raises(LayoutError, match=r"tensor 'layer.nrom' has no Spec; the nearest is 'layer.norm'"):
        take_stock(specs, tensors | {"layer.nrom": torch.zeros(16)})
    del tensors["layer.norm"]
    with pytest.raises(LayoutError, match=r"Spec 'layer.norm' has no tensor"):
        take_stock(specs, tensors)


def test_the_state_of_a_receiver() -> None:
    record = Record(("a", "b", "c", "d"))
    assert str(record.state()) == "no sync yet"
    steps = [("a", "b"), ("b",), ("c",), ()]  # nothing writes d: it is empty
    record.begin(1, steps)
    assert str(record.state()) == "no sync yet"  # nothing was written
    for number in range(4):
        record.writing(number)
        record.written(number)
    record.complete(1)
    assert (record.state().version, str(record.state())) == (1, "version 1")
    record.begin(2, steps)
    assert record.state().version == 1
    record.writing(0)
    assert (record.state().torn, record.state().old) == (("a", "b"), ("c",))
    record.written(0)
    state = record.state()
    assert (state.version, state.attempted, state.new, state.old, state.torn) == (None, 2, ("a", "d"), ("c",), ("b",))
    record.begin(3, steps)  # breaks off before it writes: what was torn stays so, what was new is of an older version
    state = record.state()
    assert (state.whole, state.torn, state.old) == (False, ("b",), ("a", "c"))
    for number in range(4):
        record.writing(number)
        record.written(number)
    record.complete(3)
    assert record.state().version == 3
    record.doubt()
    assert record.state().torn == ("a", "b", "c", "d")
    assert "broken off" in str(record.state())


def test_the_report() -> None:
    report = SyncReport(3, "rollout 1", 3 << 30, 2.0, {"wire": 1.5, "scatter": 0.5}, 7, 1536, 10, 4)
    text = str(report)
    assert text.startswith("rollout 1: version 3, 3.00 GiB of 10 tensors in 4 buckets, 2.000 s (wire 1.500, ")
    assert json.loads(json.dumps(report.to_json()))["bytes_per_second"] == 3 * 2**29
    assert [readable(n) for n in (0, 1023, 1024, 5 << 20)] == ["0 B", "1023 B", "1.0 KiB", "5.0 MiB"]
    assert readable(5 << 40) == "5120.00 GiB"

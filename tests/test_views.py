# SPDX-License-Identifier: Apache-2.0
"""Any view is a source, any view without overlap a target, and offsets may be as large as they like."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from binding import DIMS, pair, plan_of, refused
from shadow import BACKENDS, guarded

import layout_kernels as lk
from layout_kernels import Spec
from layout_kernels.testing import assert_same_bytes


@pytest.mark.parametrize("side", ["source", "target"])
def test_declared_wants_contiguous_memory(side: str) -> None:
    spec, plain = Spec("o h", dims=DIMS, declared="h o"), Spec("o h", dims=DIMS)
    view = torch.zeros(4, 8, dtype=torch.int32)[:, ::2]
    whole = torch.zeros(4, 4, dtype=torch.int32)
    if side == "source":
        refused(
            lk.compile({"w": spec}, {"t": plain}),
            {"w": view},
            {"t": whole},
            "source 'w'",
            "'h o'",
            "contiguous",
            "(8, 2)",
        )
        refused(
            lk.compile({"w": spec}, {"t": plain}), {"w": whole.t()}, {"t": whole}, "source 'w'", "contiguous", "(1, 4)"
        )
    else:
        refused(
            lk.compile({"s": plain}, {"w": spec}),
            {"s": whole},
            {"w": view},
            "target 'w'",
            "'h o'",
            "contiguous",
            "(8, 2)",
        )


@pytest.mark.parametrize("backend", BACKENDS)
def test_declared_describes_the_bytes(backend: str) -> None:
    plan = lk.compile(
        {"s": Spec("o h", dims={"o": 2, "h": 3}, declared="h o")}, {"t": Spec("o h", dims={"o": 2, "h": 3})}
    )
    target = torch.zeros(2, 3, dtype=torch.int64)
    plan.run({"s": torch.arange(6).reshape(3, 2)}, {"t": target}, backend)
    assert target.reshape(-1).tolist() == list(range(6))


VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda b: b[:4, :4].t(),
    "every other column": lambda b: b[:4, :8:2],
    "every other row": lambda b: b[:8:2, :4],
    "a corner": lambda b: b[3:7, 2:6],
    "one row for all": lambda b: b[1, :4].expand(4, 4),
    "a sliding window": lambda b: b.reshape(-1)[:7].unfold(0, 4, 1),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", VIEWS)
def test_any_view_is_a_source(name: str, backend: str) -> None:
    buffer = torch.arange(64, dtype=torch.int32).reshape(8, 8)
    view = VIEWS[name](buffer)
    assert not view.is_contiguous()
    target = torch.zeros(4, 4, dtype=torch.int32)
    plan_of().run({"model.weight": view}, {"engine.weight": target}, backend)
    assert_same_bytes(target, view.t().contiguous())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", [name for name in VIEWS if name not in ("one row for all", "a sliding window")])
def test_views_without_overlap_are_targets(name: str, backend: str) -> None:
    buffer = torch.full((8, 8), -1, dtype=torch.int32)
    view, sources = VIEWS[name](buffer), pair()[0]
    plan_of().run(sources, {"engine.weight": view}, backend)
    assert_same_bytes(view.contiguous(), sources["model.weight"].t().contiguous())
    assert int((buffer == -1).sum()) == 64 - 16, "something beside the view was written"


@pytest.mark.parametrize("name", ["one row for all", "a sliding window"])
def test_a_target_that_overlaps_itself(name: str) -> None:
    view = VIEWS[name](torch.zeros(8, 8, dtype=torch.int32))
    refused(plan_of(), pair()[0], {"engine.weight": view}, "target 'engine.weight'", "overlap", str(view.stride()))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.int8, torch.float8_e4m3fn, torch.float8_e8m0fnu, torch.int16, torch.float64, torch.complex128],
    ids=str,
)
def test_any_dtype_moves_as_bytes(dtype: torch.dtype, backend: str) -> None:
    raw = torch.arange(16 * dtype.itemsize, dtype=torch.uint8).reshape(4, -1)
    raw = raw & 1 if dtype == torch.bool else raw | 0xF0
    source, target = raw.view(dtype), torch.zeros(4, 4, dtype=dtype)
    plan_of().run({"model.weight": source}, {"engine.weight": target}, backend)
    assert_same_bytes(
        target, source.view(torch.uint8).reshape(4, 4, -1).transpose(0, 1).contiguous().reshape(4, -1).view(dtype)
    )


def test_names_of_any_characters() -> None:
    keys = ["", "ü/日本\n'\"\\", ("rank", 0), 7, None]
    plan = lk.compile(
        {k: Spec("h", of=str(k), dims=DIMS) for k in keys}, {k: Spec("h", of=str(k), dims=DIMS) for k in keys}
    )
    targets = {key: torch.zeros(4) for key in keys}
    plan.run({key: torch.full((4,), float(n)) for n, key in enumerate(keys)}, targets)
    assert [int(targets[key][0]) for key in keys] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_copy_past_two_to_the_thirty_first(backend: str) -> None:
    """Pages that nobody touches cost nothing: only the last rows of three gibi-elements move, out and in."""
    dims = {"o": 3 * 2**10, "x": 2, "h": 2**20}
    big = Spec("[pad:o _:x] h", dims=dims, padding={"pad": "keep"})
    small = Spec("x h/n", dims=dims, mesh={"n": slice(0, 3)})
    source, target = (torch.empty(big.shape(), dtype=torch.int8) for _ in range(2))
    source[-2:] = torch.arange(2, dtype=torch.int8).reshape(2, 1) + 5
    target[-3:] = -1
    held = guarded((2, 3), torch.int8, holes=True)
    lk.compile({"s": big}, {"t": small}, unused="allow").run({"s": source}, {"t": held.tensor}, backend)
    assert held.tensor.tolist() == [[5] * 3, [6] * 3]
    held.assert_untouched("t")
    lk.compile({"s": big}, {"t": big}).run({"s": source}, {"t": target}, backend)
    assert_same_bytes(target[-2:], source[-2:])
    assert int((target[-3] == -1).sum()) == 2**20, "kept padding was written"

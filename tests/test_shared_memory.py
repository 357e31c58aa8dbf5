# SPDX-License-Identifier: Apache-2.0
"""Tensors that share memory: equal elements are written once, different ones are refused."""

from __future__ import annotations

import pytest
import torch
from binding import DIMS, pair, plan_of, refused
from shadow import BACKENDS

import layout_kernels as lk
from layout_kernels import Spec
from layout_kernels.testing import assert_same_bytes


def shared(**targets: Spec) -> lk.CopyPlan:
    return lk.compile({"s": Spec("n [knope:d val:d] c", dims={"n": 3, "d": 4, "c": 4})}, targets, unused="allow")


KV = {"n": 3, "d": 4, "c": 4}
SOURCE = torch.arange(96, dtype=torch.int32).reshape(3, 8, 4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_tied_tensors_are_written_once(backend: str) -> None:
    one = torch.zeros(3, 8, 4, dtype=torch.int32)
    spec = Spec("n [knope:d val:d] c", dims=KV)
    bound = shared(embed=spec, head=spec, again=spec).bind(
        {"s": SOURCE}, {"embed": one, "head": one, "again": one.detach()}, backend
    )
    bound.run()
    assert_same_bytes(one, SOURCE)
    assert bound.nbytes == one.numel() * 4


@pytest.mark.parametrize("order", [("kv_b", "w_uv", "w_uk"), ("w_uk", "w_uv", "kv_b")], ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_derived_views_over_their_whole_are_written_once(backend: str, order: tuple[str, ...]) -> None:
    """W_UV and W_UK_T as strided views over kv_b_proj: their elements are the same, at the same addresses."""
    whole = torch.zeros(3, 8, 4, dtype=torch.int32)
    views = {"kv_b": whole, "w_uk": whole[:, :4], "w_uv": whole[:, 4:].transpose(1, 2)}
    layouts = {"kv_b": "n [knope:d val:d] c", "w_uk": "n [knope:d] c", "w_uv": "n c [val:d]"}
    plan = shared(**{key: Spec(layouts[key], dims=KV) for key in order})
    bound = plan.bind({"s": SOURCE}, {key: views[key] for key in order}, backend)
    bound.run()
    assert_same_bytes(whole, SOURCE)
    assert bound.nbytes == whole.numel() * 4


@pytest.mark.parametrize("view", ["n [knope:d] c", "n [val:d] c"])
def test_shared_memory_for_different_elements_is_refused(view: str) -> None:
    whole = torch.zeros(3, 8, 4, dtype=torch.int32)
    wrong = whole[:, 4:] if "knope" in view else whole[:, :4]
    plan = shared(kv_b=Spec("n [knope:d val:d] c", dims=KV), view=Spec(view, dims=KV))
    refused(plan, {"s": SOURCE}, {"kv_b": whole, "view": wrong}, "'kv_b'", "'view'", "share memory", "different")


def test_shared_memory_read_in_another_order_is_refused() -> None:
    one = torch.zeros(4, 4, dtype=torch.int32)
    plan = lk.compile({"s": Spec("o h", dims=DIMS)}, {"a": Spec("o h", dims=DIMS), "b": Spec("h o", dims=DIMS)})
    refused(plan, {"s": pair()[0]["model.weight"]}, {"a": one, "b": one}, "'a'", "'b'", "share memory")
    plan.run({"s": pair()[0]["model.weight"]}, {"a": one, "b": one.t()})
    assert_same_bytes(one, pair()[0]["model.weight"])


def test_neighbours_in_one_buffer_share_nothing() -> None:
    buffer = torch.zeros(4, 8, dtype=torch.int32)
    plan = lk.compile({"s": Spec("[x y] o h", dims=DIMS)}, {tag: Spec(f"[{tag}] o h", dims=DIMS) for tag in "xy"})
    source = torch.arange(32, dtype=torch.int32).reshape(2, 4, 4)
    plan.run({"s": source}, {"x": buffer[None, :, :4], "y": buffer[None, :, 4:]})
    assert_same_bytes(buffer, torch.cat([source[0], source[1]], dim=1))


def test_elements_of_another_size_or_phase_share_nothing_equal() -> None:
    dims = {"h": 2}
    memory = bytearray(16)
    views = [torch.frombuffer(memory, dtype=torch.int32, count=2, offset=offset) for offset in (0, 2)]
    plan = lk.compile({"s": Spec("h", dims=dims)}, {"a": Spec("h", dims=dims), "b": Spec("h", dims=dims)})
    refused(plan, {"s": torch.ones(2, dtype=torch.int32)}, {"a": views[0], "b": views[1]}, "'a'", "'b'", "share memory")
    cast = lk.compile(
        {"s": Spec("h", dims=dims)}, {"a": Spec("h", dims=dims), "b": Spec("h", dims=dims, dtype=torch.bfloat16)}
    )
    wide = torch.zeros(2)
    refused(cast, {"s": torch.ones(2)}, {"a": wide, "b": wide.view(torch.bfloat16)[:2]}, "'a'", "'b'", "share memory")


def test_a_zeroed_padding_shares_memory_with_no_weight() -> None:
    dims = {"h": 4}
    one = torch.ones(8, dtype=torch.int32)
    padded = Spec("[_:h pad:h]", dims=dims, padding={"pad": "zero"})
    plan = lk.compile({"s": Spec("h", dims=dims)}, {"padded": padded, "h": Spec("h", dims=dims)})
    refused(plan, {"s": one[:4].clone()}, {"padded": one, "h": one[4:]}, "'padded'", "'h'", "share memory")
    kept = lk.compile(
        {"s": Spec("h", dims=dims)}, {"padded": padded.replace(padding={"pad": "keep"}), "h": Spec("h", dims=dims)}
    )
    kept.run({"s": torch.arange(4, dtype=torch.int32)}, {"padded": one, "h": one[4:]})
    assert one.tolist() == [0, 1, 2, 3, 0, 1, 2, 3], "kept padding may hold another tensor's weights"


def test_a_source_in_the_memory_of_a_target_is_refused() -> None:
    buffer = torch.arange(24, dtype=torch.int32)
    for source in (buffer[:16], buffer[8:24]):
        refused(
            plan_of(),
            {"model.weight": source.view(4, 4)},
            {"engine.weight": buffer[:16].view(4, 4)},
            "'model.weight'",
            "'engine.weight'",
            "share memory",
        )


def test_a_source_between_the_rows_of_a_target_simply_works() -> None:
    buffer = torch.arange(32, dtype=torch.int32).reshape(4, 8)
    source = buffer[:, :4].clone()
    plan_of().run({"model.weight": buffer[:, :4]}, {"engine.weight": buffer[:, 4:]})
    assert_same_bytes(buffer[:, 4:].contiguous(), source.t().contiguous())
    assert_same_bytes(buffer[:, :4].contiguous(), source)


def test_a_window_that_slides_over_a_target_is_refused() -> None:
    """A source may overlap itself, and is then still seen to overlap a target."""
    flat = torch.zeros(40, dtype=torch.int32)
    window = flat[:7].unfold(0, 4, 1)
    for start in range(7):
        target = flat[start : start + 16].view(4, 4)
        refused(plan_of(), {"model.weight": window}, {"engine.weight": target}, "share memory")

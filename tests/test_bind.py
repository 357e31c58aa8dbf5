# SPDX-License-Identifier: Apache-2.0
"""Binding a plan to tensors: what is refused before a byte moves, and what a replay notices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from binding import pair, plan_of, refused
from shadow import BACKENDS

import layout_kernels as lk
from layout_kernels import Spec
from layout_kernels.backends import REGISTRY

# -- the wrong tensors -----------------------------------------------------------------------------------------------


def test_a_tensor_that_is_missing_or_unknown() -> None:
    sources, targets = pair()
    refused(
        plan_of(),
        {"model.weights": sources["model.weight"]},
        targets,
        "source 'model.weight'",
        "no tensor",
        "nearest is 'model.weights'",
    )
    refused(plan_of(), sources, {}, "target 'engine.weight'", "no tensor")
    refused(
        plan_of(),
        sources,
        {**targets, "engine.weights": torch.zeros(1)},
        "'engine.weights'",
        "without a Spec",
        "nearest is 'engine.weight'",
    )


@pytest.mark.parametrize("shape", [(4, 5), (16,), (4, 4, 1), (2, 8), ()], ids=str)
def test_a_wrong_shape(shape: tuple[int, ...]) -> None:
    sources, targets = pair()
    refused(
        plan_of(),
        {"model.weight": torch.zeros(shape, dtype=torch.int32)},
        targets,
        "source 'model.weight'",
        str(shape),
        "(4, 4)",
        "'o h'",
    )
    refused(
        plan_of(),
        sources,
        {"engine.weight": torch.zeros(shape, dtype=torch.int32)},
        "target 'engine.weight'",
        str(shape),
        "(4, 4)",
        "'h o'",
    )


def test_a_wrong_dtype() -> None:
    sources, targets = pair()
    short = {"engine.weight": torch.zeros(4, 4, dtype=torch.int16)}
    refused(
        plan_of(),
        sources,
        short,
        "'model.weight'",
        "torch.int32",
        "'engine.weight'",
        "torch.int16",
        "dtype=torch.int16",
    )
    refused(plan_of(dtype=torch.int64), sources, targets, "'engine.weight'", "torch.int32", "torch.int64")
    equal_size = {"engine.weight": torch.zeros(4, 4, dtype=torch.float32)}
    refused(plan_of(), sources, equal_size, "torch.int32", "torch.float32")
    refused(plan_of(dtype=torch.float32), sources, equal_size, "torch.int32", "torch.float32", "torch.bfloat16", "cast")


@pytest.mark.parametrize("thing", [None, [[0] * 4] * 4, torch.zeros(4, 4).numpy()], ids=["None", "a list", "numpy"])
def test_no_tensor_at_all(thing: Any) -> None:
    refused(plan_of(), {"model.weight": thing}, pair()[1], "'model.weight'", type(thing).__name__)


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("make", [lambda t: t.to("meta"), lambda t: t.to_sparse()], ids=["meta", "sparse"])
@pytest.mark.filterwarnings("ignore:.*sparse.*:UserWarning")
def test_a_tensor_without_plain_memory(side: str, make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    sources, targets = pair(torch.float32)
    held = sources if side == "source" else targets
    (key,) = held
    held[key] = make(held[key])
    refused(plan_of(), sources, targets, f"{side} '{key}'", str(held[key].device), str(held[key].layout))


class Wrapped(torch.Tensor):
    """A tensor with a shape and no address, as distributed tensors are."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapped:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)  # type: ignore[attr-defined, no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} was called")


def test_a_wrapper_without_an_address() -> None:
    sources, targets = pair()
    refused(plan_of(), {"model.weight": Wrapped(sources["model.weight"])}, targets, "source 'model.weight'", "Wrapped")


@pytest.mark.parametrize(
    "make", [lambda t: t.conj(), lambda t: torch.complex(t.real, t.real).conj().imag], ids=["conjugated", "negated"]
)
def test_a_tensor_whose_bytes_are_not_its_numbers(make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    lazy = make(torch.ones(4, 4, dtype=torch.complex64))
    assert lazy.is_conj() or lazy.is_neg()
    refused(
        plan_of(),
        {"model.weight": lazy},
        {"engine.weight": torch.zeros(4, 4, dtype=lazy.dtype)},
        "'model.weight'",
        "resolve",
    )


# -- backends --------------------------------------------------------------------------------------------------------


def test_an_unknown_backend() -> None:
    refused(plan_of(), *pair(), "'cqu'", "reference", "nearest is 'cpu'", backend="cqu")


def test_a_backend_that_cannot_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REGISTRY["reference"], "missing", lambda: "its chip is in another room", raising=False)
    refused(plan_of(), *pair(), "'reference'", "another room", backend="reference")
    assert lk.backends()["reference"] == "unavailable: its chip is in another room"


def test_a_tensor_on_another_device_than_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REGISTRY["reference"], "devices", ("npu",), raising=False)
    refused(plan_of(), *pair(), "'model.weight'", "cpu", "'reference'", "npu", backend="reference")


def test_auto_picks_the_backend_of_the_device() -> None:
    assert plan_of().bind(*pair()).backend == "cpu"
    for name in BACKENDS:
        assert plan_of().bind(*pair(), backend=name).backend == name


# -- in place, replayed ----------------------------------------------------------------------------------------------


def test_parameters_are_written_in_place() -> None:
    target = torch.nn.Parameter(torch.zeros(4, 4))
    address = target.data_ptr()
    plan_of().run({"model.weight": torch.nn.Parameter(torch.ones(4, 4))}, {"engine.weight": target})
    assert (target.data_ptr(), target.requires_grad, float(target.detach().sum())) == (address, True, 16.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_bound_plan_replays_what_the_sources_hold_now(backend: str) -> None:
    sources, targets = pair()
    bound = plan_of().bind(sources, targets, backend)
    for step in range(3):
        sources["model.weight"].fill_(step)
        bound.run()
        assert int(targets["engine.weight"].sum()) == 16 * step


MOVES: dict[str, Callable[[torch.Tensor], object]] = {
    "new data": lambda t: setattr(t, "data", torch.zeros_like(t)),
    "other storage": lambda t: t.set_(torch.zeros(64, dtype=t.dtype).untyped_storage(), 3, (4, 4), (4, 1)),
    "a grown storage": lambda t: t.untyped_storage().resize_(1 << 24),
    "a freed storage": lambda t: t.untyped_storage().resize_(0),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("side", [0, 1], ids=["source", "target"])
@pytest.mark.parametrize("move", MOVES.values(), ids=list(MOVES))
def test_a_tensor_that_has_moved_is_noticed(move: Callable[[torch.Tensor], object], side: int, backend: str) -> None:
    tensors = pair()
    bound = plan_of().bind(*tensors, backend=backend)
    ((key, tensor),) = tensors[side].items()
    move(tensor)
    with pytest.raises(lk.LayoutError, match=f"'{key}' has moved"):
        bound.run()


def test_launches_and_bytes() -> None:
    bound = plan_of().bind(*pair())
    assert (bound.launches, bound.nbytes) == (1, 64)
    empty = lk.compile({"s": Spec("z", dims={"z": 0})}, {"t": Spec("z", dims={"z": 0})})
    assert empty.bind({"s": torch.zeros(0)}, {"t": torch.zeros(0)}).nbytes == 0

# SPDX-License-Identifier: Apache-2.0
"""What the device is told: few launches, small tables, the widest access that addresses allow, offsets past 2**31."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from shadow import guarded
from torch.utils._python_dispatch import TorchDispatchMode

import layout_kernels as lk
from layout_kernels.backends import REGISTRY, recipes, triton, triton_variants
from layout_kernels.backends.device_table import device_tables
from layout_kernels.backends.recipes import Rows, Transpose
from layout_kernels.backends.replay import Replay, only_device
from layout_kernels.backends.triton_variants import variant_of
from layout_kernels.table import Table
from layout_kernels.testing import assert_same_bytes, tagged

interpreter = pytest.importorskip("triton.runtime.interpreter")
MOVED = (2, 2, 0)


def tables(layouts: tuple[str, str], dims: dict[str, Any], addresses: tuple[int, int] = (0, 0)) -> dict[Any, Any]:
    """The device's tables of 16-bit elements, with both tensors at these addresses."""
    table = lk.compile({"s": lk.Spec(layouts[0], dims=dims)}, {"t": lk.Spec(layouts[1], dims=dims)}).table
    ours, theirs = (2 * offset + start for offset, start in zip(table.columns()[3:], addresses, strict=True))
    return device_tables(table, [MOVED], np.zeros(len(table), dtype=np.int64), ours, theirs, variant_of)


def launches_of(table: Table) -> int:
    """How many kernels 16-bit tensors need, were all addresses aligned."""
    zeros = np.zeros(len(table), dtype=np.int64)
    return len(device_tables(table, [MOVED], zeros, zeros, zeros, variant_of))


@pytest.mark.parametrize(
    ("layouts", "dims", "addresses", "expected"),
    [
        (("a b", "a b"), {"a": 64, "b": 64}, (1024, 512), (False, 8, 2)),
        (("a b", "a b"), {"a": 64, "b": 64}, (1024, 520), (False, 8, 1)),
        (("a b", "a b"), {"a": 64, "b": 64}, (1026, 512), (False, 2, 1)),
        (("a b c", "b a c"), {"a": 64, "b": 64, "c": 2}, (1024, 512), (True, 4, 4)),
        (("a b c", "b a c"), {"a": 64, "b": 64, "c": 8}, (1024, 512), (False, 8, 2)),
        (("a b c", "b a c"), {"a": 64, "b": 64, "c": 12}, (1024, 512), (False, 8, 1)),
        (("a b", "b a"), {"a": 64, "b": 64}, (1024, 512), (True, 2, 8)),
        (("a b", "b a"), {"a": 64, "b": 64}, (1028, 512), (True, 2, 2)),
        (("a b", "b a"), {"a": 100, "b": 64}, (1024, 512), (True, 2, 4)),
        (("a b", "b a"), {"a": 99, "b": 64}, (1024, 512), (True, 2, 1)),
        (("a b", "b a"), {"a": 99, "b": 64}, (1025, 512), (False, 1, 1)),
        (("a b", "b a"), {"a": 4, "b": 4096}, (1024, 512), (False, 2, 1)),
    ],
)
def test_the_widest_access_that_steps_and_addresses_allow(
    layouts: tuple[str, str], dims: dict[str, Any], addresses: tuple[int, int], expected: tuple[bool, int, int]
) -> None:
    (variant,) = tables(layouts, dims, addresses)
    assert (variant.transposed, variant.ours, variant.width) == expected


def test_neighbouring_digits_join_a_transpose() -> None:
    """Gate and up beside each other in the source: one long row of it, not many pairs."""
    dims = {"e": 2, "h": 32, "i": 8}
    plan = lk.compile({"s": lk.Spec("e h (i [gate up])", dims=dims)}, {"t": lk.Spec("e ([gate up] i) h", dims=dims)})
    (shape,) = plan.table.shapes
    known = recipes.recipes(shape, MOVED, False)
    assert known is not None
    assert isinstance(known[0], Rows)
    assert known[1] == Transpose(2, 2, ((2, 2, 512), (8, 4, 64)), ((32, 32, 2),), ((2, 1024, 1024),))


def experts(count: int, into: str) -> Any:
    """Each expert a tensor of its own, into one tensor of all."""
    dims = {"e": count, "i": 32, "h": 48}
    sources = {e: lk.Spec("i h", of="fc1", dims=dims, at={"e": e}) for e in range(count)}
    return lk.compile(sources, {"t": lk.Spec(into, of="fc1", dims=dims)}).table


@pytest.mark.parametrize(("into", "launches"), [("e i h", 1), ("e h i", 1)])
def test_one_launch_however_many_tensors(into: str, launches: int) -> None:
    table = experts(18_432, into)
    assert len(table) == 18_432
    assert launches_of(table) == launches


def test_two_launches_for_a_bucket_of_rows_and_transposes() -> None:
    rows, transposes = experts(9_216, "e i h"), experts(9_216, "e h i")
    both = Table(
        rows.shapes + transposes.shapes,
        np.concatenate([rows.shape, transposes.shape + len(rows.shapes)]),
        *(np.concatenate(pair) for pair in zip(rows.columns()[1:], transposes.columns()[1:], strict=True)),
    )
    assert launches_of(both) == 2


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("odd", [False, True], ids=["aligned", "misaligned"])
@pytest.mark.parametrize("into", ["e a b", "e b a", "b e a"])
def test_tables_are_small_for_large_blocks(into: str, odd: bool, size: int) -> None:
    """Less than 0.1 % of the bytes that are written, for blocks of 256 KiB."""
    dims = {"e": 64, "a": 512 // size, "b": 512}
    sources = {e: lk.Spec("a b", dims=dims, at={"e": e}) for e in range(64)}
    table = lk.compile(sources, {"t": lk.Spec(into, dims=dims)}).table
    address = np.where(odd, size, 1024) + table.source_offset * size
    packed = device_tables(table, [(size, size, 0)], np.zeros(64, dtype=np.int64), address, address, variant_of)
    assert sum(one.nbytes for one in packed.values()) < 0.001 * 64 * 2**18


def test_a_run_says_what_it_launches_and_what_its_tables_take() -> None:
    dims = {"a": 512, "b": 512}
    plan = lk.compile({"s": lk.Spec("a b", dims=dims)}, {"t": lk.Spec("b a", dims=dims)})
    held = [torch.zeros(512, 512, dtype=torch.int8) for _ in range(2)]
    replay = REGISTRY["triton"].prepare(plan.table, [held[0]], [held[1]])
    assert isinstance(replay, Replay)
    assert replay.launches == 1
    assert 0 < replay.table_nbytes < 0.001 * 2**18


@pytest.mark.parametrize("into", ["t a b", "t b a"])
def test_offsets_past_two_to_the_31(into: str) -> None:
    """Four corners of memory that is reserved, never touched in between."""
    dims = {"t": 2, "a": 16, "b": 32}
    plan = lk.compile({"s": lk.Spec("t a b", dims=dims)}, {"t": lk.Spec(into, dims=dims)})
    far = 2**32 + 64
    sides = [torch.empty(far + 512, dtype=torch.int16) for _ in range(2)]
    shapes = [plan.sources["s"].shape(), plan.targets["t"].shape()]
    ours, theirs = (side.as_strided(shape, (far, shape[2], 1)) for side, shape in zip(sides, shapes, strict=True))
    ours[:], theirs[:] = tagged(plan.sources["s"], torch.int16), 0
    plan.run({"s": ours}, {"t": theirs}, "triton")
    assert_same_bytes(theirs.contiguous(), tagged(plan.targets["t"], torch.int16))


@pytest.mark.parametrize("into", ["a b c", "b a c", "c a b"])
def test_positions_counted_in_64_bits(into: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_variants, "LARGEST_INDEX", 0)
    dims = {"a": 20, "b": 40, "c": 24}
    plan = lk.compile({"s": lk.Spec("a b c", dims=dims)}, {"t": lk.Spec(into, dims=dims)})
    held = guarded(plan.targets["t"].shape(), torch.int16)
    plan.run({"s": tagged(plan.sources["s"], torch.int16)}, {"t": held.tensor}, "triton")
    assert_same_bytes(held.tensor, tagged(plan.targets["t"], torch.int16))
    held.assert_untouched(into)


@pytest.mark.parametrize("shift", [1, 2, 4, 8])
@pytest.mark.parametrize("into", ["a b", "b a"])
def test_elements_that_are_not_aligned_themselves(into: str, shift: int) -> None:
    """Complex numbers of 16 bytes at addresses that no register of their size could read."""
    dims = {"a": 20, "b": 24}
    plan = lk.compile({"s": lk.Spec("a b", dims=dims)}, {"t": lk.Spec(into, dims=dims)})
    table = plan.table
    raw = [torch.zeros(480 * 16 + 16, dtype=torch.uint8) for _ in range(2)]
    raw[0][:] = torch.arange(len(raw[0])) % 251
    start = [np.array([side.data_ptr() + shift], dtype=np.int64) for side in raw]
    packed = device_tables(table, [(16, 16, 0)], np.zeros(1, dtype=np.int64), *start, variant_of)
    triton.replay(packed, torch.device("cpu"))()
    ours, theirs = (side[shift : shift + 480 * 16].clone().view(torch.complex128) for side in raw)
    expected = ours.reshape(20, 24)
    assert_same_bytes(theirs, (expected if into == "a b" else expected.t().contiguous()).reshape(-1))
    assert not raw[1][:shift].any()
    assert not raw[1][shift + 480 * 16 :].any()


def test_a_cast_of_misaligned_elements_is_refused() -> None:
    table = lk.compile({"s": lk.Spec("a", dims={"a": 4})}, {"t": lk.Spec("a", dims={"a": 4})}).table
    zero, odd = np.zeros(1, dtype=np.int64), np.array([1025], dtype=np.int64)
    with pytest.raises(lk.LayoutError, match="0x401: its elements are not aligned"):
        device_tables(table, [(4, 2, 7)], zero, odd + 1, odd, variant_of)


def test_tensors_of_two_devices_are_refused() -> None:
    tensors = [torch.empty(1), torch.empty(1, device="meta")]
    with pytest.raises(lk.LayoutError, match="the tensors are on cpu, meta"):
        only_device(tensors)


class NoCopies(TorchDispatchMode):
    """No operator of torch's that moves elements may be reached, by whatever name it was called."""

    FORBIDDEN = ("copy", "clone", "cat", "index", "contiguous", "gather", "stack", "fill", "zero")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert not any(word in str(func) for word in self.FORBIDDEN), f"{func} was reached"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("backend", ["cpu", "triton"])
@pytest.mark.parametrize("into", ["[_:(a b) pad:a]", "[_:(b a) pad:a]"])
def test_torch_copies_nothing(backend: str, into: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = REGISTRY[backend].missing()
    if reason:
        pytest.skip(reason)
    dims = {"a": 32, "b": 48}
    target = lk.Spec(into, dims=dims, dtype=torch.bfloat16, padding={"pad": "zero"})
    plan = lk.compile({"s": lk.Spec("a b", dims=dims)}, {"t": target})
    source, held = tagged(plan.sources["s"], torch.float32), torch.empty(target.shape(), dtype=torch.bfloat16)
    expected = torch.empty_like(held)
    plan.run({"s": source}, {"t": expected}, "reference")

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("torch was asked to copy")

    bound = plan.bind({"s": source}, {"t": held}, backend)
    if backend == "triton":  # the interpreter itself copies arguments from and to a device, which there is none
        monkeypatch.setattr(interpreter.GridExecutor, "_init_args_hst", lambda _, args, kwargs: (args, kwargs))
        monkeypatch.setattr(interpreter.GridExecutor, "_restore_args_dev", lambda *_: None)
    with monkeypatch.context() as patch, NoCopies():
        for place, name in (
            (torch.Tensor, "copy_"),
            (torch.Tensor, "contiguous"),
            (torch, "cat"),
            (torch, "index_select"),
        ):
            patch.setattr(place, name, refused)
        bound.run()
    assert_same_bytes(held, expected)
    with NoCopies(), pytest.raises(AssertionError, match="copy_"):
        held.copy_(expected)


def test_a_named_backend_that_cannot_run_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET")
    if torch.cuda.is_available():
        pytest.skip("there is a device")
    assert lk.backends()["triton"].startswith("unavailable: there is no CUDA or ROCm device")
    one = torch.zeros(3)
    spec = lk.Spec("a", dims={"a": 3})
    with pytest.raises(lk.LayoutError, match="'triton' cannot run here: there is no CUDA or ROCm device"):
        lk.compile({"s": spec}, {"t": spec}).run({"s": one}, {"t": one.clone()}, "triton")


def test_powers_of_two() -> None:
    assert recipes.power_of_two([12, 0, 8]) == 4
    assert recipes.power_of_two([3, 16]) == 1

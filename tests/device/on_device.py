# SPDX-License-Identifier: Apache-2.0
"""What must hold on a real GPU, without pytest, which may not be there: ``python on_device.py``.

With ``TRITON_INTERPRET=1 python on_device.py cpu`` all that needs no GPU runs in Triton's interpreter.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from random_layouts import fits, side, world
from shadow import CASES, Guarded, filled, guarded

import layout_kernels as lk
from layout_kernels.testing import assert_same_bytes, tagged

PLACES: list[dict[str, Any]] = [{}, {"shift": 1}, {"holes": True}]
FLOATS = [torch.bfloat16, torch.float16, torch.float32]
Held = Mapping[Any, Guarded]


def moved(held: Held, device: str) -> tuple[dict[Any, torch.Tensor], dict[Any, torch.Tensor]]:
    """Guarded tensors on the device: the tensors, and the memory around each."""
    buffers = {key: guard.buffer.to(device, copy=True) for key, guard in held.items()}
    tensors = {}
    for key, guard in held.items():
        tensor = guard.tensor
        start = tensor.data_ptr() - guard.buffer.data_ptr()
        flat = buffers[key][start : start + (len(buffers[key]) - start) // tensor.itemsize * tensor.itemsize]
        tensors[key] = flat.view(tensor.dtype).as_strided(tensor.shape, tensor.stride())
    return tensors, buffers


def assert_converts(plan: lk.CopyPlan, sources: Held, targets: Held, expected: Held, device: str, name: str) -> None:
    """Targets and all memory around them are as expected, after one run and after two."""
    ours, _ = moved(sources, device)
    theirs, around = moved(targets, device)
    bound = plan.bind(ours, theirs, "triton")
    for _ in range(2):
        bound.run()
        for key, buffer in around.items():
            assert_same_bytes(buffer, expected[key].buffer, f"{name} {key}")


def check_cases(device: str) -> None:
    """The shared cases: aligned, misaligned, strided."""
    for case in CASES:
        plan = lk.compile(case.sources, case.targets)
        for dtype in (torch.int16, torch.float32):
            for place in PLACES:
                sides = []
                for name, specs, values in (("sources", case.sources, True), ("targets", case.targets, False)):
                    sides.append(_held(case, name, specs, dtype, place, values))
                wanted = _held(case, "targets", case.targets, dtype, place, True)
                assert_converts(plan, *sides, wanted, device, f"{case.name} {dtype} {place}")


def _held(case: Any, name: str, specs: Any, dtype: torch.dtype, place: dict[str, Any], values: bool) -> Held:
    made = {}
    for key, spec in specs.items():
        numbers = case.values[name, key] if values else [-1] * len(case.values[name, key])
        made[key] = filled(numbers, case.shapes[name, key], dtype, **({} if spec.declared else place))
    return made


def check_random_layouts(device: str) -> None:
    """Layouts drawn at random, against the reference."""
    for seed in range(60 if device != "cpu" else 15):
        r = Random(seed)
        one = world(r)
        sources, targets = side(r, one, target=False), side(r, one, target=True)
        if not (fits(sources) and fits(targets)):
            continue
        dtype = r.choice([torch.uint8, torch.int16, torch.int32, torch.int64])
        plan = lk.compile(sources, targets, replicas="first")
        ours = {key: guarded(spec.shape(), dtype, shift=r.randrange(3)) for key, spec in sources.items()}
        for key, spec in sources.items():
            ours[key].tensor.copy_(tagged(spec, dtype))
        shifts = {key: r.randrange(3) for key in targets}
        sides = [{k: guarded(s.shape(), dtype, shift=shifts[k]) for k, s in targets.items()} for _ in range(2)]
        plan.run({k: g.tensor for k, g in ours.items()}, {k: g.tensor for k, g in sides[1].items()}, "reference")
        assert_converts(plan, ours, *sides, device, f"seed {seed}")


def check_transposes(device: str) -> None:
    """Larger than a tile both ways, of every size of element."""
    for dtype in (torch.uint8, torch.int16, torch.int32, torch.int64):
        for shift in (0, 1, 2):
            for dims in ({"a": 300, "b": 272}, {"a": 131, "b": 129}):
                plan = lk.compile({"s": lk.Spec("a b", dims=dims)}, {"t": lk.Spec("b a", dims=dims)})
                source, target, wanted = (
                    guarded(spec.shape(), dtype, shift=shift)
                    for spec in (plan.sources["s"], plan.targets["t"], plan.targets["t"])
                )
                source.tensor.copy_(tagged(plan.sources["s"], dtype))
                wanted.tensor.copy_(tagged(plan.targets["t"], dtype))
                assert_converts(plan, {"s": source}, {"t": target}, {"t": wanted}, device, f"{dtype} {shift} {dims}")


def check_casts(device: str) -> None:
    """Every pattern of 16 bits, and of 32 bits those around ties, in rows and transposed."""
    lows = torch.tensor([0, 1, 0x0FFF, 0x1000, 0x1001, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
    every = torch.arange(65536)
    patterns = {2: every.to(torch.int16), 4: (every[:, None] * 65536 + lows).reshape(-1).to(torch.int32)}
    for held in FLOATS:
        values = patterns[held.itemsize].view(held).reshape(-1, 64)
        for wanted in [dtype for dtype in FLOATS if dtype != held]:
            for layout in ("a b", "b a"):
                dims = {"a": len(values), "b": 64}
                target = lk.Spec(layout, dims=dims, dtype=wanted)
                plan = lk.compile({"s": lk.Spec("a b", dims=dims)}, {"t": target})
                expected = torch.zeros(target.shape(), dtype=wanted)
                plan.run({"s": values}, {"t": expected}, "reference")
                made = torch.zeros(target.shape(), dtype=wanted, device=device)
                plan.run({"s": values.to(device)}, {"t": made}, "triton")
                assert_same_bytes(made, expected, f"{held} to {wanted}, {layout}")


def check_far_offsets(device: str) -> None:
    """Offsets past 2**31 elements."""
    far = 2**32 + 64
    if device == "cuda" and torch.cuda.mem_get_info()[0] < 5 * far:
        print("  not enough memory for offsets past 2**31: skipped")
        return
    plan = lk.compile(
        {"s": lk.Spec("t a b", dims={"t": 2, "a": 16, "b": 32})},
        {"t": lk.Spec("t b a", dims={"t": 2, "a": 16, "b": 32})},
    )
    sides = [torch.empty(far + 512, dtype=torch.int16, device=device) for _ in range(2)]
    ours, theirs = sides[0].as_strided((2, 16, 32), (far, 32, 1)), sides[1].as_strided((2, 32, 16), (far, 16, 1))
    ours.copy_(tagged(plan.sources["s"], torch.int16))
    plan.run({"s": ours}, {"t": theirs}, "triton")
    assert_same_bytes(theirs.contiguous(), tagged(plan.targets["t"], torch.int16))


def _transpose_and_rows(device: str) -> tuple[lk.CopyPlan, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    dims = {"a": 512, "b": 384}
    sources = {name: lk.Spec("a b", of=name, dims=dims) for name in ("x", "y")}
    targets = {"x": lk.Spec("b a", of="x", dims=dims), "y": lk.Spec("a b", of="y", dims=dims)}
    ours = {key: tagged(spec, torch.bfloat16).to(device) for key, spec in sources.items()}
    theirs = {key: torch.zeros(spec.shape(), dtype=torch.bfloat16, device=device) for key, spec in targets.items()}
    return lk.compile(sources, targets), ours, theirs


def check_graph(device: str) -> None:
    """A run is captured in a graph, and its replay moves what the sources hold by then."""
    plan, ours, theirs = _transpose_and_rows(device)
    bound = plan.bind(ours, theirs, "triton")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        bound.run()
    for tensor in ours.values():
        tensor.view(torch.int16).add_(1)
    graph.replay()
    assert_same_bytes(theirs["x"], ours["x"].t().contiguous())
    assert_same_bytes(theirs["y"], ours["y"])


def check_stream(device: str) -> None:
    """A run is queued behind what its stream holds already, and the host does not wait for it."""
    plan, ours, theirs = _transpose_and_rows(device)
    bound = plan.bind(ours, theirs, "triton")
    expected = {key: torch.full_like(tensor, 1.5) for key, tensor in theirs.items()}
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        for tensor in ours.values():
            tensor.fill_(1.5)
        bound.run()
    waited = stream.query()
    torch.cuda.set_sync_debug_mode("default")
    assert not waited, "the stream was waited for, or the run was not put on it"
    torch.cuda.synchronize()
    for key, tensor in theirs.items():
        assert_same_bytes(tensor, expected[key], key)


ANYWHERE = (check_cases, check_random_layouts, check_transposes, check_casts, check_far_offsets)
ON_A_GPU = (check_graph, check_stream)


def main(device: str = "cuda") -> None:
    """Run every check; the first that fails ends it."""
    checks: tuple[Callable[[str], None], ...] = ANYWHERE + (ON_A_GPU if device == "cuda" else ())
    for check in checks:
        start = time.perf_counter()
        check(device)
        print(f"  {check.__name__}: holds ({time.perf_counter() - start:.1f} s)", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

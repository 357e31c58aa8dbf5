# SPDX-License-Identifier: Apache-2.0
"""What a GPU moves, beside the same card's contiguous copy and beside torch: nothing wrong is timed.

    python -m benchmarks.device [--device cuda] [--scale 1] [--json FILE]

GB/s counts bytes read and written. Times are medians between events on one stream.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

import layout_kernels as lk
from layout_kernels.backends.replay import Replay
from layout_kernels.families import published
from layout_kernels.testing import assert_same_bytes

from .cases import cases

Tensors = dict[Any, torch.Tensor]
MODELS = ("glm-4.7-flash", "qwen3-30b-a3b")
COLUMNS = ("work", "GB", "launches", "tables, %", "ms", "GB/s", "of copy", "torch, ms", "times torch")
SHARE = 0.9  # of the free memory that a model's weights may take, twice


def seconds(run: Callable[[], Any], rounds: int, device: str) -> float:
    """The median time of a run, by events of the device."""
    run()
    if device == "cpu":
        return statistics.median(_on_host(run) for _ in range(rounds))
    taken = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        taken.append(start.elapsed_time(end) / 1e3)
    return statistics.median(taken)


def _on_host(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def tensors(specs: Mapping[Any, lk.Spec], device: str, seed: int | None = None) -> Tensors:
    """Memory for every Spec; random bits where there is a seed."""
    made = {}
    generator = torch.Generator(device).manual_seed(seed or 0)
    for key, spec in specs.items():
        tensor = torch.zeros(spec.shape(), dtype=spec.dtype or torch.bfloat16, device=device)
        if seed is not None:
            bits = tensor.view(torch.int16 if tensor.itemsize == 2 else torch.int32)
            bits.random_(-(2**15), 2**15, generator=generator)
        made[key] = tensor
    return made


def copy_rate(nbytes: int, device: str, rounds: int = 20) -> float:
    """Bytes a second, read and written, of the card's own contiguous copy."""
    one, two = (torch.ones(nbytes // 4, dtype=torch.int32, device=device) for _ in range(2))
    return 2 * nbytes / seconds(lambda: two.copy_(one), rounds, device)


def tables_share(plan: lk.CopyPlan, ours: Tensors, theirs: Tensors) -> float:
    """Bytes of the tables on the device for each byte that is written."""
    sources, targets = (
        [held[key] for key in keys] for held, keys in ((ours, plan.source_keys), (theirs, plan.target_keys))
    )
    from layout_kernels.backends import REGISTRY

    replay = REGISTRY["triton"].prepare(plan.table, sources, targets)
    assert isinstance(replay, Replay)
    return replay.table_nbytes / sum(tensor.nbytes for tensor in theirs.values())


def row(name: str, nbytes: int, replay: Any, ours: float, copy: float, by_torch: float) -> dict[str, Any]:
    """One line of the table; ``copy`` is a rate."""
    rate = 2 * nbytes / ours
    launches, share = replay
    values = (
        name,
        nbytes / 1e9,
        launches,
        100 * share,
        ours * 1e3,
        rate / 1e9,
        rate / copy,
        by_torch * 1e3,
        by_torch / ours,
    )
    return dict(zip(COLUMNS, values, strict=True))


def layer(case: Any, device: str) -> dict[str, Any]:
    """A layout of one layer against the same conversion as weight-sync loops write it."""
    ours, theirs = tensors(case.sources, device, seed=1), tensors(case.targets, device)
    plan = lk.compile(case.sources, case.targets)
    bound = plan.bind(ours, theirs, "triton")
    bound.run()
    for name, expected in case.by_torch(ours).items():
        assert_same_bytes(theirs[name], expected, name)
    share = tables_share(plan, ours, theirs)
    mine = seconds(bound.run, 20, device)
    by_torch = seconds(lambda: case.by_torch(ours), 5, device)
    return row(case.about, bound.nbytes, (bound.launches, share), mine, copy_rate(bound.nbytes, device), by_torch)


def fitting(name: str, scale: float, device: str) -> tuple[dict[str, Any], str]:
    """The model with as many layers as the memory holds twice."""
    config = published(name, scale)
    free = torch.cuda.mem_get_info()[0] if device == "cuda" else 8 * 2**30
    whole = config["num_hidden_layers"]
    while True:
        specs = lk.family(config).specs("megatron", experts="grouped")
        if 2 * nbytes_of(specs) <= SHARE * free:
            break
        config["num_hidden_layers"] -= 1
    layers = config["num_hidden_layers"]
    return config, f"{name}, whole" if layers == whole else f"{name}, {layers} of {whole} layers"


def nbytes_of(specs: Mapping[Any, lk.Spec]) -> int:
    """Bytes of all tensors."""
    return sum(torch.Size(spec.shape()).numel() * (spec.dtype or torch.bfloat16).itemsize for spec in specs.values())


def digest(held: Tensors) -> list[int]:
    """A number for each tensor that depends on what stands where."""
    numbers = []
    for tensor in held.values():
        bits = tensor.view(torch.int16).reshape(-1)
        total = 0
        for part in bits.split(2**26):
            weight = torch.arange(part.numel(), device=part.device) % 65521 + 1
            total = total * 31 + int((part.to(torch.int64) * weight).sum())
        numbers.append(total)
    return numbers


def model(name: str, scale: float, device: str) -> dict[str, Any]:
    """A model from Megatron's grouped experts to vLLM, against one copy_ of torch for each block."""
    config, title = fitting(name, scale, device)
    family = lk.family(config)
    plan = lk.compile(family.specs("megatron", experts="grouped"), family.specs("vllm"))
    ours, theirs = tensors(plan.sources, device, seed=2), tensors(plan.targets, device)
    by_torch = plan.bind(ours, theirs, "reference")
    slow = seconds(by_torch.run, 1, device)
    expected = digest(theirs)
    for tensor in theirs.values():
        tensor.zero_()
    bound = plan.bind(ours, theirs, "triton")
    mine = seconds(bound.run, 5, device)
    assert digest(theirs) == expected, f"{title}: not what torch makes of it"
    share, nbytes, launches = tables_share(plan, ours, theirs), bound.nbytes, bound.launches
    ours.clear()
    theirs.clear()
    del by_torch, bound
    rate = copy_rate(min(nbytes, 2**32), device)
    return row(title, nbytes, (launches, share), mine, rate, slow)


def card(device: str) -> str:
    """What was measured on."""
    return (
        torch.cuda.get_device_name() if device == "cuda" else "Triton's interpreter on a CPU: no figure means anything"
    )


def show(rows: list[dict[str, Any]]) -> None:
    """The table, in plain text: nothing but torch and Triton need be installed."""
    lines = [COLUMNS, *([f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)))


def main() -> None:
    """Measure, print one table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--json", default=None)
    parser.add_argument("--only-models", action="store_true", help="leave out the layers, which have one size")
    asked = parser.parse_args()
    rows = [] if asked.only_models else [layer(case, asked.device) for case in cases()]
    for name in MODELS:
        rows.append(model(name, asked.scale, asked.device))
        if asked.device == "cuda":
            torch.cuda.empty_cache()
    print(card(asked.device))
    show(rows)
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump({"card": card(asked.device), "torch": torch.__version__, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()

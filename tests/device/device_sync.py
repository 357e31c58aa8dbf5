# SPDX-License-Identifier: Apache-2.0
"""A whole sync between two processes whose weights lie on GPUs: nccl between two of them, gloo where there is one.

``python device_sync.py`` prints what held, and exits with 1 where it did not.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from typing import Any

import torch

import layout_kernels as lk
from layout_kernels.backends.reference import cast
from layout_kernels.families import published
from layout_kernels.testing import assert_same_bytes, free_port, tagged

SCALE, STEPS, SECONDS = 2000, 2, 40


def rank(role: str, device: str, backend: str, address: str, answers: Any) -> None:
    """One side: every step has other weights, and the receiver compares every byte."""
    try:
        if device.startswith("cuda"):
            torch.cuda.set_device(device)
        family = lk.family(published("glm-4.7-flash", SCALE))
        specs = family.specs("megatron", experts="grouped") if role == "trainer" else family.specs("vllm")
        sent = {spec.of: spec.dtype or torch.bfloat16 for spec in family.specs("megatron", experts="grouped").values()}
        tensors = {
            name: torch.zeros(spec.shape(), dtype=spec.dtype or torch.bfloat16, device=device)
            for name, spec in specs.items()
        }
        channel = lk.connect(address, role=role, rank=0, world=1, backend=backend, time_limit=SECONDS)
        kind = lk.WeightSender if role == "trainer" else lk.WeightReceiver
        participant = kind(specs, tensors, channel)
        launches = 0
        for step in range(1, STEPS + 1):
            if role == "trainer":
                for name, spec in specs.items():
                    tensors[name].copy_(tagged(spec, tensors[name].dtype, seed=step))
            launches = participant.sync(step).launches
            if role == "rollout":
                for name, spec in specs.items():
                    expected = cast(tagged(spec, sent[spec.of], seed=step), tensors[name].dtype)
                    assert_same_bytes(tensors[name], expected, f"step {step} {name}")
        answers.put((role, f"{len(specs)} tensors, {launches} launches"))
    except Exception as error:  # noqa: BLE001 - the parent prints it
        answers.put((role, f"failed: {type(error).__name__}: {error}"))


def main(device: str = "cuda") -> int:
    """Start both sides and wait for them."""
    several = device == "cuda" and torch.cuda.device_count() > 1
    backend = "nccl" if several else "gloo"
    devices = ["cuda:0", f"cuda:{int(several)}"] if device == "cuda" else [device] * 2
    address = f"127.0.0.1:{free_port()}"
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    started = time.perf_counter()
    processes = [
        context.Process(target=rank, args=(role, where, backend, address, answers), daemon=True)
        for role, where in zip(("trainer", "rollout"), devices, strict=True)
    ]
    for process in processes:
        process.start()
    said = dict(answers.get(timeout=SECONDS + 30) for _ in processes)
    print(f"  sync over {backend}, {' to '.join(devices)}: {said} ({time.perf_counter() - started:.1f} s)")
    return int(any(text.startswith("failed") for text in said.values()))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

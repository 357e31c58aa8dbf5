# SPDX-License-Identifier: Apache-2.0
"""One layer, ours beside memcpy of the same bytes with the same threads and beside torch: nothing wrong is timed.

python -m pytest benchmarks --benchmark-enable
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import layout_kernels as lk
from layout_kernels.backends.cpu import threads
from layout_kernels.testing import assert_same_bytes

from .cases import Case, Tensors, cases

CASES = {case.name: case for case in cases()}
ROUNDS = {"ours": 9, "memcpy": 9, "streaming": 9, "torch": 3}


def random_tensors(specs: dict[str, lk.Spec]) -> Tensors:
    generator = torch.Generator().manual_seed(0)
    low, high = -(2**15), 2**15
    made = {}
    for name, spec in specs.items():
        bits = torch.randint(low, high, spec.shape(), dtype=torch.int16, generator=generator)
        made[name] = bits.view(torch.bfloat16)
    return made


def runner(case: Case, who: str) -> tuple[Callable[[], Any], int]:
    """What is timed, and how many bytes it moves."""
    sources = random_tensors(case.sources)
    nbytes = sum(tensor.nbytes for tensor in sources.values())
    if who == "torch":
        return (lambda: case.by_torch(sources)), nbytes
    if who in ("memcpy", "streaming"):
        return copier(nbytes, streaming=who == "streaming"), nbytes
    targets = {name: torch.zeros(spec.shape(), dtype=torch.bfloat16) for name, spec in case.targets.items()}
    bound = lk.compile(case.sources, case.targets).bind(sources, targets)
    bound.run()
    for name, tensor in case.by_torch(sources).items():
        assert_same_bytes(targets[name], tensor, name)
    return bound.run, nbytes


def copier(nbytes: int, *, streaming: bool) -> Callable[[], None]:
    from layout_kernels import _core

    source, target = (torch.full((nbytes,), fill, dtype=torch.uint8) for fill in (1, 2))
    size, count = nbytes, threads()
    return lambda: _core.copy(target.data_ptr(), source.data_ptr(), size, count, streaming)


@pytest.mark.parametrize("who", list(ROUNDS))
@pytest.mark.parametrize("name", list(CASES))
def test_layer(benchmark: Any, name: str, who: str) -> None:
    timed, nbytes = runner(CASES[name], who)
    benchmark.group = CASES[name].about
    benchmark.extra_info.update(who=who, nbytes=nbytes)
    benchmark.pedantic(timed, rounds=ROUNDS[who], warmup_rounds=1)

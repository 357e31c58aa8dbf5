# SPDX-License-Identifier: Apache-2.0
"""The fault that the project was born from: MindSpeed's grouped experts, read in two known wrong ways, and by us."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

import layout_kernels as lk
from layout_kernels.testing import assert_same_bytes

Readings = dict[str, torch.Tensor]
SIZES = [{"e": 8, "h": 6, "i": 4}, {"e": 8, "h": 8, "i": 4}, {"e": 4, "h": 4, "i": 4}]  # 2i == h, i == h


def published(e: int, h: int, i: int) -> torch.Tensor:
    """Gate and up of every expert as the checkpoint has them, each number once: [expert, gate/up, width, hidden]."""
    return torch.arange(e * 2 * i * h, dtype=torch.int32).reshape(e, 2, i, h)


def mindspeed(truth: torch.Tensor, ranks: int) -> Readings:
    """What the ranks hold: a loop over experts that knows nothing of the notation; bytes [experts, hidden, 2 width]."""
    held = {}
    for rank, experts in enumerate(truth.chunk(ranks)):
        bytes_of = torch.stack([torch.cat([gate.t(), up.t()], dim=1) for gate, up in experts])
        held[f"rank {rank}"] = bytes_of.reshape(truth.shape[3], -1)  # the declared shape [hidden, experts * 2 width]
    return held


def ours(held: Readings, sizes: dict[str, int], backend: str) -> torch.Tensor:
    ranks = len(held)
    sources = {
        name: lk.Spec("e/ep h ([gate up] i)", declared="h (e/ep [gate up] i)", dims=sizes, mesh={"ep": (ranks, rank)})
        for rank, name in enumerate(held)
    }
    target = lk.Spec("e ([gate up] i) h", dims=sizes)
    w13 = torch.full(target.shape(), -1, dtype=torch.int32)
    lk.compile(sources, {"w13": target}).run(held, {"w13": w13}, backend=backend)
    return w13


def legal_view(held: Readings, sizes: dict[str, int]) -> torch.Tensor:
    return torch.cat([weight.view(-1, 2 * sizes["i"], sizes["h"]) for weight in held.values()])


def declared_dim(held: Readings, sizes: dict[str, int]) -> torch.Tensor:
    whole = torch.cat(list(held.values()), dim=1)
    return whole.view(sizes["e"], sizes["h"], -1).transpose(1, 2).contiguous()


@pytest.mark.parametrize(("sizes", "ranks"), list(itertools.product(SIZES, [2, 4])))
def test_ours_is_right(sizes: dict[str, int], ranks: int) -> None:
    truth = published(**sizes)
    for backend in ("reference", "cpu"):
        made = ours(mindspeed(truth, ranks), sizes, backend)
        assert_same_bytes(made, truth.reshape(sizes["e"], 2 * sizes["i"], sizes["h"]), "w13")


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("wrong", [legal_view, declared_dim])
def test_known_wrong_readings_are_wrong(wrong: Callable[..., torch.Tensor], sizes: dict[str, int]) -> None:
    truth = published(**sizes)
    made = wrong(mindspeed(truth, 4), sizes)
    right = truth.reshape(made.shape)
    assert sorted(made.reshape(-1).tolist()) == sorted(right.reshape(-1).tolist())  # none is lost
    assert (made == right).float().mean() < 0.3  # and hardly one is where it belongs

# SPDX-License-Identifier: Apache-2.0
"""The fault that this project was born from, small enough to look at: ``python -m benchmarks.grouped_fault``.

MindSpeed (and Megatron-Core's legacy grouped GEMM) hold the experts of a rank in one parameter of shape
``[hidden, experts * 2 * width]`` whose bytes are expert after expert, ``[experts, hidden, 2 * width]``. Every number
here says which expert it belongs to, so each reading shows whose numbers a slot of the engine ends up with.
"""

from __future__ import annotations

import torch
from rich.console import Console
from rich.table import Table

import layout_kernels as lk
from layout_kernels.testing import tagged

DIMS = {"e": 8, "h": 6, "i": 4}
RANKS = 4


def trainer() -> dict[str, lk.Spec]:
    """What each expert-parallel rank holds: the bytes, and the shape that it declares."""
    return {
        f"rank {rank}": lk.Spec(
            "e/ep h ([gate up] i)", declared="h (e/ep [gate up] i)", of="fc1", dims=DIMS, mesh={"ep": (RANKS, rank)}
        )
        for rank in range(RANKS)
    }


ENGINE = {"w13": lk.Spec("e ([gate up] i) h", of="fc1", dims=DIMS)}


def ours(held: dict[str, torch.Tensor]) -> torch.Tensor:
    """The copy that the two layouts define."""
    w13 = torch.empty(ENGINE["w13"].shape(), dtype=torch.int32)
    lk.compile(trainer(), ENGINE).run(held, {"w13": w13})
    return w13


def legal_view(held: dict[str, torch.Tensor]) -> torch.Tensor:
    """Each rank's bytes viewed as what the engine wants: the count fits, so nothing complains."""
    experts = DIMS["e"] // RANKS
    return torch.cat([weight.view(experts, 2 * DIMS["i"], DIMS["h"]) for weight in held.values()])


def declared_dim(held: dict[str, torch.Tensor]) -> torch.Tensor:
    """Ranks concatenated on the dimension that the declared shape has for experts, then cut by expert."""
    whole = torch.cat(list(held.values()), dim=1)
    return whole.view(DIMS["e"], DIMS["h"], 2 * DIMS["i"]).transpose(1, 2).contiguous()


READINGS = {"derived from the layout": ours, "a legal view": legal_view, "ranks joined on declared dim 1": declared_dim}


def results() -> dict[str, tuple[list[str], float]]:
    """For each reading: the experts whose numbers each slot holds, and the share of numbers in the right place."""
    held = {name: tagged(spec, torch.int32) for name, spec in trainer().items()}
    right = tagged(ENGINE["w13"], torch.int32)
    expert_of = {int(number): expert for expert, numbers in enumerate(right) for number in numbers.reshape(-1)}
    told = {}
    for name, reading in READINGS.items():
        made = reading(held)
        slots = [sorted({expert_of[int(number)] for number in slot.reshape(-1)}) for slot in made]
        share = (made == right).float().mean().item()
        told[name] = (["".join(map(str, slot)) for slot in slots], share)
    return told


def main() -> None:
    """Print the table."""
    table = Table("reading", *(f"slot {slot}" for slot in range(DIMS["e"])), "numbers in place")
    for name, (slots, share) in results().items():
        table.add_row(name, *slots, f"{share:.0%}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()

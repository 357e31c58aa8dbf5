# SPDX-License-Identifier: Apache-2.0
"""Every variant compiled for GPUs that need not be there: access widths, registers, shared memory, no spills."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from layout_kernels.backends.recipes import WIDEST
from layout_kernels.backends.triton_variants import REGISTERS, WARPS, Variant

THREADS = WARPS * 32
SHARED = {"80": 164 * 1024, "90": 228 * 1024, "100": 228 * 1024, "gfx942": 64 * 1024}  # bytes of a multiprocessor
CASTS = {(4, 2): (7, 8), (2, 4): (3, 6), (2, 2): (2, 4)}  # sizes: bf16 is 0, fp16 1, fp32 2


def powers(most: int) -> list[int]:
    return [1 << power for power in range(most.bit_length())]


def variants() -> list[Variant]:
    """Everything that `variant_of` can ask for."""
    moves = [Variant(False, min(width, 8), min(width, 8), max(1, width // 8), 0, False) for width in powers(WIDEST)]
    moves += [Variant(True, size, size, width, 0, False) for size in (1, 2, 4, 8) for width in powers(WIDEST // size)]
    casts = [
        Variant(transposed, ours, theirs, width, cast, False)
        for transposed in (False, True)
        for (ours, theirs), numbers in CASTS.items()
        for cast in numbers
        for width in (powers(WIDEST // 2) if cast == numbers[0] else [WIDEST // 2])
    ]
    return moves + casts + [Variant(False, 8, 8, 2, 0, True), Variant(True, 2, 2, 8, 0, True)]


def title(variant: Variant) -> str:
    how = "transpose" if variant.transposed else "rows"
    cast = f"-cast{variant.cast}" if variant.cast else ""
    return f"{how}-{variant.ours}to{variant.theirs}x{variant.width}{cast}{'-wide' * variant.wide}"


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, Variant], dict[str, Any]]:
    asked = [(arch, variant) for arch in SHARED for variant in variants()]
    lines = "\n".join(json.dumps([arch, astuple(variant)]) for arch, variant in asked)
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))}
    command = [sys.executable, str(Path(__file__).parent / "compiling.py")]
    said = subprocess.run(command, input=lines, env=environment, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    return dict(zip(asked, map(json.loads, said.stdout.splitlines()), strict=True))


def widths(accesses: dict[str, int], prefix: str) -> dict[int, int]:
    """Bytes of an access -> how many stand in the code."""
    counted: dict[int, int] = {}
    for name, count in accesses.items():
        parts = name.split(".")
        if parts[0] == prefix:
            lanes = next((int(part[1:]) for part in parts if part in ("v2", "v4", "v8")), 1)
            nbytes = lanes * int(parts[-1].lstrip("bsuf")) // 8
            counted[nbytes] = counted.get(nbytes, 0) + count
    return counted


@pytest.mark.parametrize("variant", variants(), ids=title)
@pytest.mark.parametrize("arch", ["80", "90", "100"])
def test_only_the_access_that_a_variant_is_for(facts: Any, arch: str, variant: Variant) -> None:
    known = facts[arch, variant]
    across, down = variant.step
    for side, size in (("ld", variant.ours), ("st", variant.theirs)):
        nbytes = min(WIDEST, size * variant.width)
        each_thread = across * down * size // nbytes // THREADS
        found = widths(known["data"], side)
        assert set(found) == {nbytes}, f"{side}: {known['data']}"
        assert found[nbytes] % each_thread == 0, "an access less or more than the tile has"
    assert set(widths(known["table"], "ld")) <= {4, 8}
    assert not widths(known["table"], "st")


@pytest.mark.parametrize("variant", variants(), ids=title)
@pytest.mark.parametrize("arch", ["80", "90", "100"])
def test_two_programs_fit_and_nothing_spills(facts: Any, arch: str, variant: Variant) -> None:
    known = facts[arch, variant]
    assert (known["STACK"], known["LOCAL"], known["local"]) == (0, 0, 0)
    assert 2 * THREADS * known["REG"] <= REGISTERS
    assert variant.programs * THREADS * known["REG"] <= REGISTERS
    assert variant.programs * (known["shared"] + 1024) <= SHARED[arch]
    if variant.transposed and not variant.cast:
        across, down = variant.step
        assert known["shared"] >= across * down * variant.ours // 2, "the tile does not turn in shared memory"


@pytest.mark.parametrize("variant", variants(), ids=title)
def test_on_amd(facts: Any, variant: Variant) -> None:
    known = facts["gfx942", variant]
    assert (known["vgpr_spill_count"], known["private_segment_fixed_size"]) == (0, 0)
    assert not [name for name in known["accesses"] if name.startswith("scratch")]
    assert known["vgpr_count"] <= 128, "two programs of 8 waves have 512 registers a lane and unit"
    assert 2 * known["shared"] <= SHARED["gfx942"]
    stores = {name for name in known["accesses"] if "store" in name}
    names = {16: "dwordx4", 8: "dwordx2", 4: "dword", 2: "short", 1: "byte"}
    wanted = names[min(WIDEST, variant.theirs * variant.width)]
    assert stores <= {f"global_store_{wanted}", f"global_store_{wanted}_d16_hi"}
    if variant.ours * variant.width >= WIDEST:
        assert known["accesses"]["global_load_dwordx4"] > 0

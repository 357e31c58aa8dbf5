# SPDX-License-Identifier: Apache-2.0
"""What the NPU would do, read from the scheduled kernels: DMA both ways, vector transposes, two buffers in flight."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import pytest
from lowered import Lowering

from layout_kernels.backends.recipes import Rows, Transpose
from layout_kernels.backends.triton_ascend import ROW_BYTES, AscendVariant, variant_of

UNIFIED_BUFFER = 192 * 1024
CASTS = {(4, 2): (7, 8), (2, 4): (3, 6), (2, 2): (2, 4)}  # sizes: bf16 is 0, fp16 1, fp32 2


def variants() -> list[AscendVariant]:
    """Everything that `variant_of` can ask for."""
    rows = [Rows(1, 1, ((nbytes, 1, 1),)) for nbytes in ROW_BYTES]
    found = [variant_of(one, width, 0, zero) for one in rows for width in (1, 2, 4, 8) for zero in (False, True)]
    turned = [(size, size, 0) for size in (1, 2, 4, 8)]
    for (ours, theirs), casts in CASTS.items():
        for cast in casts:
            runs = [Rows(ours, theirs, ((nbytes // max(ours, theirs), ours, theirs),)) for nbytes in ROW_BYTES]
            found += [variant_of(one, 1, cast, False) for one in runs]
            turned.append((ours, theirs, cast))
    for ours, theirs, cast in turned:
        side = ((64, ours, 64 * theirs),), ((64, 64 * ours, theirs),)
        found.append(variant_of(Transpose(ours, theirs, *side, ()), 1, cast, False))
    return list(dict.fromkeys(found))


def title(variant: AscendVariant) -> str:
    how = "transpose" if variant.transposed else "zeros" if variant.zero else "rows"
    return f"{how}-{variant.ours}to{variant.theirs}-cast{variant.cast}-{variant.tile[0]}x{variant.tile[1]}"


EVERY = pytest.mark.parametrize("variant", variants(), ids=title)


@pytest.fixture(scope="module")
def lowering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lowering]:
    process = Lowering(tmp_path_factory.mktemp("scheduled"))
    yield process
    process.close()


def kernel(lowering: Lowering, variant: AscendVariant) -> str:
    """The body of the scheduled kernel."""
    text = lowering("hivm", variant).read_text()
    return text[text.index(f"func.func @{'transposes' if variant.transposed else 'rows'}(") :]


@EVERY
def test_all_data_moves_by_dma(lowering: Lowering, variant: AscendVariant) -> None:
    """One load and one store of a tile; single numbers are read from the table only, and none are written."""
    text = kernel(lowering, variant)
    calls = re.findall(r"func\.call @(\w+)", text)
    assert len([call for call in calls if call.startswith("load_gm_to_ubuf_2d")]) == (not variant.zero)
    assert len([call for call in calls if call.startswith("store_ubuf_to_gm_2d")]) == 1
    assert "memref.store" not in text
    assert "memref.copy" not in text
    views = re.findall(r"memref\.reinterpret_cast %arg([34]) to offset: \[.*?\], sizes: \[([\d, ]+)\]", text)
    assert len(views) == 2 - variant.zero
    rows, columns = variant.tile
    for argument, sizes in views:
        turned = variant.transposed and argument == "4"
        assert sizes == (f"{columns}, {rows}" if turned else f"{rows}, {columns}")


@EVERY
def test_no_loop_over_elements(lowering: Lowering, variant: AscendVariant) -> None:
    """One loop over tiles, and in it one over the digits of a shape."""
    text = kernel(lowering, variant)
    assert text.count("scf.for") == 2
    assert "scf.while" not in text
    turned = re.findall(r"func\.call @(transpose_2d_with_last_axis_\w+)", text)
    assert len(turned) == variant.transposed


@EVERY
def test_tiles_fit_the_unified_buffer(lowering: Lowering, variant: AscendVariant) -> None:
    text = kernel(lowering, variant)
    bits = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "f32": 32}
    used = [
        int(offset) + math.prod(map(int, shape.split("x")[:-1])) * bits[shape.split("x")[-1]] // 8
        for offset, shape in re.findall(r"pointer_cast\(%c(\d+)_i64\w*\) : memref<((?:\d+x)+[if]\d+)", text)
    ]
    assert used
    assert max(used) <= UNIFIED_BUFFER


@EVERY
def test_the_next_tile_loads_while_this_one_is_stored(lowering: Lowering, variant: AscendVariant) -> None:
    """Two events between the store and what fills its buffer, taken in turn."""
    if variant.zero:
        pytest.skip("zeros are not loaded")
    text = kernel(lowering, variant)
    before, inside = text.split("scf.for", 1)
    after_store = "PIPE_V" if variant.transposed or variant.cast else "PIPE_MTE2"
    flag = rf"set_flag\[<PIPE_MTE3>, <{after_store}>, (<EVENT_ID\d>|%\w+)\]"
    assert len(set(re.findall(flag, before))) == 2
    (chosen,) = {event for event in re.findall(flag, inside) if event.startswith("%")}
    assert f"wait_flag[<PIPE_MTE3>, <{after_store}>, {chosen}]" in inside
    assert re.search(r"floordiv s\d\) mod 2", lowering("hivm", variant).read_text()), "buffers do not take turns"

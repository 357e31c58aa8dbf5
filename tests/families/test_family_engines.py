# SPDX-License-Identifier: Apache-2.0
"""Every family's tables against recipes that know nothing of the notation, for engines and their kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engines import engine
from recipes import Rank
from test_family_recipes import SPARSE, assert_same, carried, published, ranks
from tiny_configs import FAMILIES, config_of

import layout_kernels as lk
from layout_kernels.families.systems import KERNELS
from layout_kernels.families.table import REFUSED

# system, kernel -> the recipe
RECIPES = {
    ("vllm", "triton"): "plain",
    ("vllm", "batched_triton"): "plain",
    ("vllm", "flashinfer_cutlass"): "up_first",
    ("vllm", "flashinfer_trtllm"): "blocks",
    ("vllm", "aiter"): "shuffled",
    ("vllm", "xpu"): "transposed",
    ("sglang", "triton"): "plain",
    ("sglang", "flashinfer_cutlass"): "up_first",
    ("sglang", "flashinfer_trtllm"): "blocks",
    ("sglang", "triton_kernels"): "transposed",
    ("sglang", "swiglu_interleaved"): "alternating",
    ("vllm-ascend", "nd"): "transposed",
    ("vllm-ascend", "nz"): "fractal",
    ("sglang-npu", "nd"): "plain",
    ("sglang-npu", "nz"): "fractal_rows",
    ("vllm-cpu", ""): "on_a_cpu",
}
# Tiles want larger sizes than the others.
LARGE = {"hidden_size": 128, "moe_intermediate_size": 64}


def test_every_kernel_has_a_recipe_or_is_refused() -> None:
    known = {(system, kernel) for system, kernels in KERNELS.items() for kernel in kernels}
    refused = {pair for pair in known if KERNELS[pair[0]][pair[1]].startswith(REFUSED)}
    assert known - refused == set(RECIPES) - {("vllm-cpu", "")}
    for system, kernel in refused:
        with pytest.raises(lk.LayoutError, match=f"kernel '{kernel}' of '{system}': "):
            lk.family(config_of("qwen3_moe")).specs(system, kernel=kernel)


def judge(name: str, config: dict[str, Any], system: str, kernel: str, all_ranks: list[Rank]) -> None:
    """Checkpoint to ranks equals the recipe; ranks to checkpoint equals the checkpoint."""
    family = lk.family(config)
    hf, checkpoint = published(name, config)
    options = {"kernel": kernel} if kernel else {}
    specs, expected = {}, {}
    for number, rank in enumerate(all_ranks):
        mesh = {"tp": rank.tp} | ({"ep": rank.ep} if rank.ep[0] > 1 else {})
        found = family.specs(system, mesh=mesh, **options)
        specs |= {(number, key): spec.replace(dtype=None) for key, spec in found.items() if not key.endswith("mixer.A")}
        kind = "sglang" if system.startswith("sglang") else "vllm"
        made = engine(checkpoint, config, FAMILIES[name][1], kind, RECIPES[system, kernel], rank)
        expected |= {(number, key): tensor.contiguous() for key, tensor in made.items()}
    hf = {key: spec for key, spec in hf.items() if not key.endswith("mixer.A_log")}
    checkpoint = {key: checkpoint[key] for key in hf}
    assert_same(carried(hf, checkpoint, specs), expected)
    assert_same(carried(specs, expected, hf), checkpoint)


PLAIN = [(name, system, tp) for name in FAMILIES for system in ("vllm", "sglang") for tp in (1, 2, 4, 8)]


@pytest.mark.parametrize(("name", "system", "tp"), PLAIN)
def test_engines(name: str, system: str, tp: int) -> None:
    """tp 4 and 8 are above the kv heads of some: each is then held by several ranks."""
    judge(name, config_of(name), system, "triton", ranks(tp))


@pytest.mark.parametrize("name", SPARSE)
def test_expert_parallelism(name: str) -> None:
    judge(name, config_of(name), "vllm", "triton", [Rank((2, n % 2), (4, n), (1, 0)) for n in range(4)])


@pytest.mark.parametrize(("system", "kernel"), RECIPES)
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_kernels(system: str, kernel: str, tp: int) -> None:
    config = {**config_of("qwen3_moe"), **LARGE, "moe_intermediate_size": 128, "num_key_value_heads": 4}
    judge("qwen3_moe", config, system, kernel, ranks(tp))
    square = {**config, "moe_intermediate_size": 64}
    judge("qwen3_moe", square, system, kernel, ranks(2))


@pytest.mark.parametrize("name", [name for name in SPARSE if name not in ("gpt_oss", "nemotron_h")])
def test_families_on_other_platforms(name: str) -> None:
    config = {**config_of(name), "intermediate_size": 64, "moe_intermediate_size": 64, "hidden_size": 64}
    for system in ("vllm-ascend", "vllm-cpu", "sglang-npu"):
        kernel = {"vllm-ascend": "nd", "sglang-npu": "nz", "vllm-cpu": ""}[system]
        judge(name, config, system, kernel, ranks(2))


@pytest.mark.parametrize(("name", "system"), [("gpt_oss", "vllm-cpu"), ("nemotron_h", "sglang-npu")])
def test_kernels_that_no_row_describes(name: str, system: str) -> None:
    with pytest.raises(lk.LayoutError, match="no layout of this kernel is written down"):
        lk.family(config_of(name)).specs(system)


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_a_decay_that_arithmetic_changes_is_no_copy(tp: int) -> None:
    """vLLM holds -exp(A_log), cut by heads: a plan that would copy it is refused by name."""
    judge_decay(tp)


def judge_decay(tp: int) -> None:
    family = lk.family(config_of("nemotron_h"))
    specs = {
        (rank, key): one for rank in range(tp) for key, one in family.specs("vllm", mesh={"tp": (tp, rank)}).items()
    }
    assert specs[tp - 1, "model.layers.0.mixer.A"].shape() == (16 // tp,)
    with pytest.raises(lk.LayoutError, match=r"mixer\.A"):
        lk.compile(family.specs("hf"), specs, replicas="first")


def placed(placement: str, experts: int, size: int) -> list[list[int]]:
    config = {**config_of("qwen3_moe"), "num_experts": experts}
    family = lk.family(config)
    hf = {k: s for k, s in family.specs("hf").items() if ".layers.0.mlp.experts." in k and "down_proj" in k}
    checkpoint = {key: torch.full(spec.shape(), float(key.split(".")[5])) for key, spec in hf.items()}
    found = []
    for rank in range(size):
        specs = family.specs("vllm", mesh={"ep": (size, rank)}, placement=placement)
        spec = {"w2": specs["model.layers.0.mlp.experts.routed_experts.w2_weight"]}
        out = {"w2": torch.zeros(spec["w2"].shape())}
        lk.compile(hf, spec, unused="allow").run(checkpoint, out)
        found.append([int(expert[0, 0]) for expert in out["w2"]])
    return found


def test_placements_of_experts() -> None:
    """Without a remainder, with one (the first ranks hold more), and in turns."""
    assert placed("linear", 8, 4) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert placed("linear", 10, 4) == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]
    assert placed("round-robin", 10, 4) == [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]
    with pytest.raises(lk.LayoutError, match="option placement 'rr' is not known"):
        placed("rr", 8, 4)


def test_slots_of_each_layer() -> None:
    """Load balancing puts other experts into the slots of each layer, some of them twice."""
    family = lk.family(config_of("qwen3_moe"))
    slots = {0: [5, 3, 5], 1: [0, 7, 1]}
    specs = family.specs("vllm", slots=slots)
    for layer, experts in slots.items():
        spec = specs[f"model.layers.{layer}.mlp.experts.routed_experts.w13_weight"]
        assert spec.mesh["ep"] == experts
        assert spec.shape() == (3, 32, 32)
    with pytest.raises(lk.LayoutError, match="slots: layer 1 is not known"):
        family.specs("vllm", slots={0: [1]})


SHARDED = [
    (system, shard, size) for system in ("hf", "transformers") for shard in ("rows", "flat") for size in (2, 3, 7)
]


@pytest.mark.parametrize(("system", "shard", "size"), SHARDED)
@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss", "deepseek_v3"])
def test_fully_sharded_data_parallel(name: str, system: str, shard: str, size: int) -> None:
    """Pieces as `torch.chunk` makes them, of rows or of the flattened tensor; from them the checkpoint comes back."""
    family = lk.family(config_of(name))
    hf, checkpoint = published(name)
    hf = {key: spec for key, spec in hf.items() if not key.startswith("model.layers.2.")}  # no live module
    checkpoint = {key: checkpoint[key] for key in hf}
    whole = {key: spec.replace(dtype=None) for key, spec in family.specs(system).items() if key in hf or system != "hf"}
    tensors = carried(hf, checkpoint, whole)
    specs, expected = {}, {}
    for rank in range(size):
        found = family.specs(system, mesh={"fsdp": (size, rank)}, shard=shard)
        for key in whole:
            pieces = (tensors[key] if shard == "rows" else tensors[key].flatten()).chunk(size)
            specs[rank, key] = found[key].replace(dtype=None)
            empty = tensors[key][:0] if shard == "rows" else tensors[key].flatten()[:0]
            expected[rank, key] = (pieces[rank] if rank < len(pieces) else empty).contiguous()
    assert {key: spec.shape() for key, spec in specs.items()} == {k: tuple(t.shape) for k, t in expected.items()}
    assert_same(carried(hf, checkpoint, specs), expected)
    assert_same(carried(specs, expected, hf), checkpoint)


def test_meshes_that_do_not_belong() -> None:
    family = lk.family(config_of("qwen3"))
    with pytest.raises(lk.LayoutError, match="'vllm' does not cut tensors flat"):
        family.specs("vllm", mesh={"fsdp": (2, 0)})
    with pytest.raises(lk.LayoutError, match="option shard 'columns' is not known"):
        family.specs("hf", mesh={"fsdp": (2, 0)}, shard="columns")

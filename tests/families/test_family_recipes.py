# SPDX-License-Identifier: Apache-2.0
"""Every family's tables against recipes that know nothing of the notation, for trainers; and round trips."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
import torch
from recipes import Options, Rank, Tensors
from tiny_configs import FAMILIES, config_of
from trainers import trained

import layout_kernels as lk
from layout_kernels.families.models import MODELS

# What has no source: arithmetic stands between the two, and plans refuse it.
NO_COPY = ("out_norm.weight", "linear_attn.norm.weight")


def published(name: str, config: dict[str, Any] | None = None) -> tuple[dict[str, lk.Spec], Tensors]:
    """A checkpoint in which every number is unique; float64 holds them all."""
    family = lk.family(config or config_of(name))
    specs = {key: spec.replace(dtype=None) for key, spec in family.specs("hf").items()}
    tensors, first = {}, 1
    for key, spec in specs.items():
        count = torch.Size(spec.shape()).numel()
        tensors[key] = torch.arange(first, first + count, dtype=torch.float64).reshape(spec.shape())
        first += count
    return specs, tensors


def without_arithmetic(specs: dict[Any, Any]) -> dict[Any, Any]:
    """Without the tensors between which there is no copy."""

    def name(key: Any) -> str:
        return str(key[-1] if isinstance(key, tuple) else key)

    return {key: value for key, value in specs.items() if not name(key).endswith(NO_COPY)}


def ranks(tp: int, ep: int = 1, etp: int | None = None) -> list[Rank]:
    """All ranks, as Megatron-Core numbers them: tensor parallelism is innermost, also in experts."""
    etp = tp if etp is None else etp
    world = range(max(tp, ep * etp))
    return [Rank((tp, n % tp), (ep, n // etp % ep), (etp, n % etp)) for n in world]


def held(name: str, options: Options, all_ranks: list[Rank]) -> dict[Any, lk.Spec]:
    family = lk.family(config_of(name))
    specs = {}
    for number, rank in enumerate(all_ranks):
        found = family.specs("megatron", mesh=dataclasses.asdict(rank), **dataclasses.asdict(options))
        specs |= {(number, key): spec.replace(dtype=None) for key, spec in found.items()}
    return without_arithmetic(specs)


def carried(specs: dict[Any, lk.Spec], tensors: dict[Any, torch.Tensor], wanted: dict[Any, lk.Spec]) -> dict[Any, Any]:
    out = {key: torch.zeros(spec.shape(), dtype=torch.float64) for key, spec in wanted.items()}
    lk.compile(specs, wanted, replicas="first").run(tensors, out, backend="cpu")
    return out


def assert_same(actual: dict[Any, torch.Tensor], expected: dict[Any, torch.Tensor]) -> None:
    assert sorted(map(str, actual)) == sorted(map(str, expected))
    for key, tensor in expected.items():
        lk.testing.assert_same_bytes(actual[key], tensor.contiguous(), key)


def judge(name: str, options: Options, all_ranks: list[Rank]) -> None:
    """Checkpoint to ranks equals the recipe; ranks to checkpoint equals the checkpoint."""
    hf, checkpoint = (without_arithmetic(part) for part in published(name))
    specs = held(name, options, all_ranks)
    expected: dict[Any, torch.Tensor] = {}
    for number, rank in enumerate(all_ranks):
        made = trained(checkpoint, config_of(name), FAMILIES[name][1], options, rank)
        expected |= {(number, key): tensor.contiguous() for key, tensor in made.items()}
    assert_same(carried(hf, checkpoint, specs), expected)
    assert_same(carried(specs, expected, hf), checkpoint)


def judge_stages(name: str) -> None:
    """Two pipeline stages: numbers of layers are local; the last has the head (tied: a copy) and the drafts."""
    config, family = config_of(name), lk.family(config_of(name))
    hf, checkpoint = (without_arithmetic(part) for part in published(name))
    specs, expected = {}, {}
    for number, rank in enumerate(ranks(2)):
        made = trained(checkpoint, config, FAMILIES[name][1], Options(), rank)
        embedding = made["embedding.word_embeddings.weight"]
        for stage in (0, 1):
            mesh = {**dataclasses.asdict(rank), "pp": (2, stage)}
            found = family.specs("megatron", mesh=mesh, **dataclasses.asdict(Options()))
            specs |= {(number, stage, key): spec.replace(dtype=None) for key, spec in found.items()}
        mine = {key.replace("layers.1.", "layers.0."): one for key, one in made.items() if "decoder.layers.1." in key}
        mine |= {key: one for key, one in made.items() if key.startswith(("decoder.final", "output", "mtp."))}
        if any(key.startswith("mtp.") for key in mine):
            mine["embedding.word_embeddings.weight"] = embedding
        mine.setdefault("output_layer.weight", embedding)
        first = {key: one for key, one in made.items() if key.startswith(("embedding", "decoder.layers.0."))}
        for stage, tensors in enumerate((first, mine)):
            expected |= {(number, stage, key): one.contiguous() for key, one in tensors.items()}
    assert_same(carried(hf, checkpoint, specs), expected)
    assert_same(carried(specs, expected, hf), checkpoint)


PLAIN = [Options(), Options("te", "te", "fused", "replicated")]
CASES = [(name, options, tp) for name in FAMILIES for options in PLAIN for tp in (1, 2, 4, 8)]


def test_every_family_has_a_recipe() -> None:
    assert {name.split(" ")[0] for name in FAMILIES} == set(MODELS)


@pytest.mark.parametrize(("name", "options", "tp"), CASES, ids=lambda case: getattr(case, "spec", str(case)))
def test_trainers(name: str, options: Options, tp: int) -> None:
    judge(name, options, ranks(tp))


STAGED = ("llama", "llama tied", "deepseek_v3", "glm4_moe")


@pytest.mark.parametrize("name", STAGED)
def test_stages(name: str) -> None:
    judge_stages(name)


LATENT = [name for name in FAMILIES if "kv_lora_rank" in FAMILIES[name][0]]
SPARSE = [name for name in FAMILIES if {"moe_intermediate_size", "num_local_experts"} & set(FAMILIES[name][0])]
STORED = ("grouped", "stacked", "stacked-transposed")
LAYOUTS = [
    *[
        (name, Options(down=down, up=up), 2)
        for name in LATENT
        for down in ("fused-sharded", "fused-replicated", "mindspeed")
        for up in ("whole", "mm-split")
    ],
    *[(name, Options("te", "te", "fused", "fused-replicated", indexer="rope-first"), 4) for name in LATENT],
]


@pytest.mark.parametrize(("name", "options", "tp"), LAYOUTS, ids=str)
def test_latent_attention_of_other_trainers(name: str, options: Options, tp: int) -> None:
    judge(name, options, ranks(tp))


@pytest.mark.parametrize(("name", "storage"), list(itertools.product(SPARSE, STORED)))
def test_storages_of_experts(name: str, storage: str) -> None:
    if name == "gpt_oss":
        with pytest.raises(lk.LayoutError, match="this storage of experts has no biases"):
            held(name, Options(experts=storage), ranks(1))
        return
    for mesh in (ranks(1, 2, 2), ranks(4, 2, 1), ranks(2, 1, 2)):
        judge(name, Options(experts=storage), mesh)


@pytest.mark.parametrize("name", [name for name in SPARSE if name != "nemotron_h"])
@pytest.mark.parametrize("storage", ["sequential", "te", "stacked"])
@pytest.mark.parametrize("block", [1, 2, 4, 8])
def test_gate_and_up_in_turn(name: str, storage: str, block: int) -> None:
    if name == "gpt_oss" and storage == "stacked":
        return
    shared = block if block < 8 else 0
    judge(name, Options(experts=storage, glu_interleave=block, shared_glu_interleave=shared), ranks(2, 2, 2))


@pytest.mark.parametrize("storage", ["grouped", "stacked-transposed"])
def test_turns_in_a_storage_that_does_not_have_them(storage: str) -> None:
    with pytest.raises(lk.LayoutError, match="blocks of gate and up in turn are not known in this storage"):
        held("qwen3_moe", Options(experts=storage, glu_interleave=4), ranks(1))


@pytest.mark.parametrize("name", ["qwen3_next", "qwen3_5_text"])
def test_a_norm_that_arithmetic_changes_is_no_copy(name: str) -> None:
    """Megatron-Core holds it less one: a plan to or from a checkpoint refuses it by name."""
    family = lk.family(config_of(name))
    with pytest.raises(lk.LayoutError, match=r"linear_attn\.norm\.weight|out_norm\.weight"):
        lk.compile(family.specs("megatron"), family.specs("hf"), replicas="first")


def test_mindspeed_names_mean_what_the_family_says() -> None:
    """`linear_qkv` and `q_layernorm` are one thing in grouped-query attention and another in latent attention."""
    one = lk.family(config_of("qwen3")).specs("megatron", spec="local", down="mindspeed", up="mm-split")
    two = lk.family(config_of("deepseek_v3")).specs("megatron", spec="local", down="mindspeed", up="mm-split")
    at = "decoder.layers.0.self_attention."
    assert (one[f"{at}linear_qkv.weight"].of, two[f"{at}linear_qkv.weight"].of) == (
        "layers.attention.qkv.weight",
        "layers.attention.qkv_down.weight",
    )
    assert one[f"{at}q_layernorm.weight"].shape() == (4,)
    assert two[f"{at}q_layernorm.weight"].shape() == (24,)
    assert one[f"{at}q_layernorm.weight"].of != two[f"{at}q_layernorm.weight"].of

# SPDX-License-Identifier: Apache-2.0
"""The tables against recipes that know nothing of the notation: plain slicing, stacking and transposing in torch.

A checkpoint is filled with unique numbers. For each rank the recipes build, name by name, what Megatron-Core, MindSpeed
and the engines hold of it; the plans derived from the tables must give the same bytes, and give the checkpoint back.
Sizes say nothing on purpose: twice an expert's width, all query heads, all value heads are as wide as the hidden size.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import layout_kernels as lk

Tensors = dict[str, torch.Tensor]

COMMON = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
}
GROUPED = {**COMMON, "num_key_value_heads": 2, "head_dim": 4}
EXPERTS = {"moe_intermediate_size": 8, "num_experts_per_tok": 2}
GLM = {
    **EXPERTS,
    "n_routed_experts": 4,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 1,
}
LATENT = {"q_lora_rank": 12, "kv_lora_rank": 8, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 4}

CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3": {"model_type": "qwen3", **GROUPED},
    "qwen3-tied": {"model_type": "qwen3", **GROUPED, "tie_word_embeddings": True, "attention_bias": True},
    "qwen3_moe": {"model_type": "qwen3_moe", **GROUPED, **EXPERTS, "num_experts": 4},
    "glm4_moe": {"model_type": "glm4_moe", **GROUPED, **GLM, "attention_bias": True, "use_qk_norm": True},
    "glm4_moe-tied": {"model_type": "glm4_moe", **GROUPED, **GLM, "tie_word_embeddings": True},
    "glm4_moe_lite": {"model_type": "glm4_moe_lite", **COMMON, "num_key_value_heads": 4, **GLM, **LATENT},
    "glm4_moe_lite-no-q-rank": {"model_type": "glm4_moe_lite", **COMMON, **GLM, **LATENT, "q_lora_rank": None},
}
SPARSE = [name for name in CONFIGS if not name.startswith("qwen3-") and name != "qwen3"]


def published(name: str, mtp: str = "own") -> tuple[dict[str, lk.Spec], Tensors]:
    """A checkpoint in which every number is unique; float32 holds them all exactly."""
    specs = lk.family(CONFIGS[name]).specs("hf", mtp=mtp)
    start = itertools.accumulate(
        (spec.shape() and torch.Size(spec.shape()).numel() for spec in specs.values()), initial=1
    )
    tensors = {
        key: torch.arange(first, first + torch.Size(spec.shape()).numel(), dtype=torch.float32).reshape(spec.shape())
        for (key, spec), first in zip(specs.items(), start, strict=False)
    }
    return specs, tensors


# --- the recipes -----------------------------------------------------------------------------------------------------


def rows(whole: torch.Tensor, size: int, rank: int) -> torch.Tensor:
    share = whole.shape[0] // size
    return whole[rank * share : (rank + 1) * share]


def columns(whole: torch.Tensor, size: int, rank: int) -> torch.Tensor:
    return rows(whole.T, size, rank).T


def gate_up(hf: Tensors, at: str, size: int, rank: int) -> torch.Tensor:
    return torch.cat([rows(hf[f"{at}gate_proj.weight"], size, rank), rows(hf[f"{at}up_proj.weight"], size, rank)])


def padded(whole: torch.Tensor, multiple: int) -> torch.Tensor:
    missing = -whole.shape[0] % multiple
    return torch.cat([whole, torch.zeros(missing, *whole.shape[1:])])


class Layers:
    """The layers of one config: their prefixes in the checkpoint, and which are sparse."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.count = config["num_hidden_layers"]
        self.drafts = config.get("num_nextn_predict_layers", 0)

    def sparse(self, layer: int) -> bool:
        return "moe_intermediate_size" in self.config and layer >= self.config.get("first_k_dense_replace", 0)

    @property
    def latent(self) -> bool:
        return "kv_lora_rank" in self.config


def megatron(
    hf: Tensors, config: dict[str, Any], spec: str, storage: str, mesh: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    """What a rank without pipeline parallelism holds in Megatron-Core."""
    layers, (tp, t) = Layers(config), mesh["tp"]
    yield "embedding.word_embeddings.weight", rows(padded(hf["model.embed_tokens.weight"], 128 * tp), tp, t)
    if not config.get("tie_word_embeddings"):
        yield "output_layer.weight", rows(padded(hf["lm_head.weight"], 128 * tp), tp, t)
    yield "decoder.final_layernorm.weight", hf["model.norm.weight"]
    for layer in range(layers.count + layers.drafts):
        there = f"model.layers.{layer}."
        here = f"decoder.layers.{layer}."
        if layer >= layers.count:
            here = f"mtp.layers.{layer - layers.count}."
            yield f"{here}enorm.weight", hf[f"{there}enorm.weight"]
            yield f"{here}hnorm.weight", hf[f"{there}hnorm.weight"]
            yield f"{here}eh_proj.weight", rows(hf[f"{there}eh_proj.weight"], tp, t)
            yield f"{here}final_layernorm.weight", hf[f"{there}shared_head.norm.weight"]
            here += "transformer_layer."
        fused = spec == "te" and not layers.latent
        norm = "self_attention.linear_qkv.layer_norm_weight" if fused else "input_layernorm.weight"
        yield here + norm, hf[f"{there}input_layernorm.weight"]
        attention = megatron_latent if layers.latent else megatron_grouped
        yield from ((here + name, value) for name, value in attention(hf, f"{there}self_attn.", config, spec, tp, t))
        mlp = (
            megatron_sparse(hf, there, config, storage, mesh)
            if layers.sparse(layer)
            else megatron_dense(hf, there, spec, tp, t)
        )
        yield from ((here + name, value) for name, value in mlp)


def megatron_grouped(
    hf: Tensors, at: str, config: dict[str, Any], spec: str, tp: int, t: int
) -> Iterator[tuple[str, Any]]:
    groups, size = config["num_key_value_heads"], config["head_dim"]
    queries = config["num_attention_heads"] // groups * size
    for kind in ("weight", "bias"):
        if f"{at}q_proj.{kind}" in hf:
            q, k, v = (hf[f"{at}{part}_proj.{kind}"] for part in "qkv")
            parts = [
                x
                for group in range(groups)
                for x in (
                    q[group * queries : (group + 1) * queries],
                    k[group * size : (group + 1) * size],
                    v[group * size : (group + 1) * size],
                )
            ]
            yield f"self_attention.linear_qkv.{kind}", rows(torch.cat(parts), tp, t)
    for part in "qk":
        if f"{at}{part}_norm.weight" in hf:
            yield f"self_attention.{part}_layernorm.weight", hf[f"{at}{part}_norm.weight"]
    yield "self_attention.linear_proj.weight", columns(hf[f"{at}o_proj.weight"], tp, t)
    if f"{at}o_proj.bias" in hf:
        yield "self_attention.linear_proj.bias", hf[f"{at}o_proj.bias"]


def megatron_latent(
    hf: Tensors, at: str, config: dict[str, Any], spec: str, tp: int, t: int
) -> Iterator[tuple[str, Any]]:
    here = "self_attention."
    down = 1 if spec == "te" else tp  # replicated, or rows
    kv_norm = f"{here}linear_kv_up_proj.layer_norm_weight" if spec == "te" else f"{here}kv_layernorm.weight"
    q_norm = f"{here}linear_q_up_proj.layer_norm_weight" if spec == "te" else f"{here}q_layernorm.weight"
    if config["q_lora_rank"]:
        yield f"{here}linear_q_down_proj.weight", rows(hf[f"{at}q_a_proj.weight"], down, t % down)
        yield q_norm, hf[f"{at}q_a_layernorm.weight"]
        yield f"{here}linear_q_up_proj.weight", rows(hf[f"{at}q_b_proj.weight"], tp, t)
    else:
        yield f"{here}linear_q_proj.weight", rows(hf[f"{at}q_proj.weight"], tp, t)
    yield f"{here}linear_kv_down_proj.weight", rows(hf[f"{at}kv_a_proj_with_mqa.weight"], down, t % down)
    yield kv_norm, hf[f"{at}kv_a_layernorm.weight"]
    yield f"{here}linear_kv_up_proj.weight", rows(hf[f"{at}kv_b_proj.weight"], tp, t)
    yield f"{here}linear_proj.weight", columns(hf[f"{at}o_proj.weight"], tp, t)


def megatron_dense(hf: Tensors, at: str, spec: str, tp: int, t: int) -> Iterator[tuple[str, Any]]:
    norm = "mlp.linear_fc1.layer_norm_weight" if spec == "te" else "pre_mlp_layernorm.weight"
    yield norm, hf[f"{at}post_attention_layernorm.weight"]
    yield "mlp.linear_fc1.weight", gate_up(hf, f"{at}mlp.", tp, t)
    yield "mlp.linear_fc2.weight", columns(hf[f"{at}mlp.down_proj.weight"], tp, t)


def megatron_sparse(
    hf: Tensors, at: str, config: dict[str, Any], storage: str, mesh: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    tp, t = mesh["tp"]
    yield "pre_mlp_layernorm.weight", hf[f"{at}post_attention_layernorm.weight"]
    yield "mlp.router.weight", hf[f"{at}mlp.gate.weight"]
    if f"{at}mlp.gate.e_score_correction_bias" in hf:
        yield "mlp.router.expert_bias", hf[f"{at}mlp.gate.e_score_correction_bias"]
    if f"{at}mlp.shared_experts.gate_proj.weight" in hf:
        yield "mlp.shared_experts.linear_fc1.weight", gate_up(hf, f"{at}mlp.shared_experts.", tp, t)
        yield "mlp.shared_experts.linear_fc2.weight", columns(hf[f"{at}mlp.shared_experts.down_proj.weight"], tp, t)
    (ep, e), (etp, et) = mesh["ep"], mesh["etp"]
    share = 4 // ep
    held = [f"{at}mlp.experts.{expert}." for expert in range(e * share, (e + 1) * share)]
    fc1 = [gate_up(hf, expert, etp, et) for expert in held]
    fc2 = [columns(hf[f"{expert}down_proj.weight"], etp, et) for expert in held]
    yield from stored(fc1, fc2, storage, config["hidden_size"])


def stored(fc1: list[torch.Tensor], fc2: list[torch.Tensor], storage: str, hidden: int) -> Iterator[tuple[str, Any]]:
    here = "mlp.experts."
    across1, across2 = torch.stack([x.T for x in fc1]), torch.stack([x.T for x in fc2])
    if storage == "grouped":
        yield f"{here}weight1", across1.reshape(hidden, -1)
        yield f"{here}weight2", across2.reshape(-1, hidden)
    elif storage == "stacked":
        yield f"{here}linear_fc1.weight", torch.stack(fc1)
        yield f"{here}linear_fc2.weight", torch.stack(fc2)
    elif storage == "stacked-transposed":
        yield f"{here}linear_fc1.weight", across1.reshape(len(fc1), *fc1[0].shape)
        yield f"{here}linear_fc2.weight", across2.reshape(len(fc2), *fc2[0].shape)
    for j, (one, two) in enumerate(zip(fc1, fc2, strict=True)):
        if storage == "sequential":
            yield f"{here}local_experts.{j}.linear_fc1.weight", one
            yield f"{here}local_experts.{j}.linear_fc2.weight", two
        elif storage == "te":
            yield f"{here}linear_fc1.weight{j}", one
            yield f"{here}linear_fc2.weight{j}", two


def engine(hf: Tensors, config: dict[str, Any], system: str, mesh: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What a rank of vLLM holds, on one of its platforms."""
    layers, (tp, t) = Layers(config), mesh["tp"]
    embedding = rows(padded(hf["model.embed_tokens.weight"], 64), tp, t)
    yield "model.embed_tokens.weight", embedding
    if not config.get("tie_word_embeddings"):
        yield "lm_head.weight", rows(padded(hf["lm_head.weight"], 64), tp, t)
    yield "model.norm.weight", hf["model.norm.weight"]
    for layer in range(layers.count + layers.drafts):
        there = here = f"model.layers.{layer}."
        if layer >= layers.count:
            here = "draft." + here
            yield "draft.model.embed_tokens.weight", embedding
            for name in ("enorm", "hnorm", "eh_proj", "shared_head.norm"):
                yield f"{here}{name}.weight", hf[f"{there}{name}.weight"]
            head = "model.embed_tokens" if config.get("tie_word_embeddings") else "lm_head"
            yield f"{here}shared_head.head.weight", rows(padded(hf[f"{head}.weight"], 64), tp, t)
            here += "mtp_block."
        for name in ("input_layernorm.weight", "post_attention_layernorm.weight"):
            yield here + name, hf[there + name]
        attention = engine_latent if layers.latent else engine_grouped
        yield from ((here + name, value) for name, value in attention(hf, f"{there}self_attn.", config, tp, t))
        if not layers.sparse(layer):
            yield f"{here}mlp.gate_up_proj.weight", gate_up(hf, f"{there}mlp.", tp, t)
            yield f"{here}mlp.down_proj.weight", columns(hf[f"{there}mlp.down_proj.weight"], tp, t)
        else:
            yield from ((here + name, value) for name, value in engine_sparse(hf, there, system, mesh))


def engine_grouped(hf: Tensors, at: str, config: dict[str, Any], tp: int, t: int) -> Iterator[tuple[str, Any]]:
    groups = config["num_key_value_heads"]
    kv = (tp, t) if tp <= groups else (groups, t * groups // tp)
    for kind in ("weight", "bias"):
        if f"{at}q_proj.{kind}" in hf:
            parts = [
                rows(hf[f"{at}q_proj.{kind}"], tp, t),
                *(rows(hf[f"{at}{part}_proj.{kind}"], *kv) for part in "kv"),
            ]
            yield f"self_attn.qkv_proj.{kind}", torch.cat(parts)
    yield "self_attn.o_proj.weight", columns(hf[f"{at}o_proj.weight"], tp, t)
    for name in ("q_norm.weight", "k_norm.weight", "o_proj.bias"):
        if at + name in hf:
            yield f"self_attn.{name}", hf[at + name]


def engine_latent(hf: Tensors, at: str, config: dict[str, Any], tp: int, t: int) -> Iterator[tuple[str, Any]]:
    down = hf[f"{at}kv_a_proj_with_mqa.weight"]
    if config["q_lora_rank"]:
        yield "self_attn.fused_qkv_a_proj.weight", torch.cat([hf[f"{at}q_a_proj.weight"], down])
        yield "self_attn.q_a_layernorm.weight", hf[f"{at}q_a_layernorm.weight"]
        yield "self_attn.q_b_proj.weight", rows(hf[f"{at}q_b_proj.weight"], tp, t)
    else:
        yield "self_attn.kv_a_proj_with_mqa.weight", down
        yield "self_attn.q_proj.weight", rows(hf[f"{at}q_proj.weight"], tp, t)
    yield "self_attn.kv_a_layernorm.weight", hf[f"{at}kv_a_layernorm.weight"]
    up = rows(hf[f"{at}kv_b_proj.weight"], tp, t)
    yield "self_attn.kv_b_proj.weight", up
    heads = up.reshape(4 // tp, 6 + 4, 8)  # a head's rows: keys without rope, then values
    yield "self_attn.mla_attn.mla_attn.W_UK_T", heads[:, :6]
    yield "self_attn.mla_attn.mla_attn.W_UV", heads[:, 6:].transpose(1, 2)
    yield "self_attn.o_proj.weight", columns(hf[f"{at}o_proj.weight"], tp, t)


def engine_sparse(hf: Tensors, at: str, system: str, mesh: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    tp, t = mesh["tp"]
    yield "mlp.gate.weight", hf[f"{at}mlp.gate.weight"]
    if f"{at}mlp.gate.e_score_correction_bias" in hf:
        yield "mlp.gate.e_score_correction_bias", hf[f"{at}mlp.gate.e_score_correction_bias"]
    if f"{at}mlp.shared_experts.gate_proj.weight" in hf:
        yield "mlp.shared_experts.gate_up_proj.weight", gate_up(hf, f"{at}mlp.shared_experts.", tp, t)
        yield "mlp.shared_experts.down_proj.weight", columns(hf[f"{at}mlp.shared_experts.down_proj.weight"], tp, t)
    ep, e = mesh.get("ep", (1, 0))
    etp, et = (1, 0) if ep > 1 else (tp, t)  # under expert parallelism experts are whole
    share = 4 // ep
    held = [f"{at}mlp.experts.{expert}." for expert in range(e * share, (e + 1) * share)]
    halves = [[rows(hf[f"{x}{part}_proj.weight"], etp, et) for part in ("gate", "up")] for x in held]
    down = [columns(hf[f"{expert}down_proj.weight"], etp, et) for expert in held]
    pack = {"vllm": torch.stack, "vllm-ascend": lambda xs: torch.stack([x.T for x in xs]), "vllm-cpu": tiled}[system]
    if system == "vllm-cpu":  # the width of a rank is filled to a multiple of 32
        halves = [[padded(half, 32) for half in pair] for pair in halves]
        down = [padded(x.T, 32).T for x in down]
    yield "mlp.experts.routed_experts.w13_weight", pack([torch.cat(pair) for pair in halves])
    yield "mlp.experts.routed_experts.w2_weight", pack(down)


def tiled(experts: list[torch.Tensor]) -> torch.Tensor:
    """Tiles of 16 rows, a column of the tile after the other, under the shape of the plain matrices."""
    return torch.stack([x.reshape(-1, 16, x.shape[1]).transpose(1, 2).reshape(x.shape) for x in experts])


# --- the judgement ---------------------------------------------------------------------------------------------------


def ranks_of(tp: int, ep: int = 1, etp: int = 1) -> list[dict[str, tuple[int, int]]]:
    """The coordinates of all ranks, as Megatron-Core numbers them: tensor parallelism is innermost, also in experts."""
    world = range(max(tp, ep * etp))
    return [{"tp": (tp, rank % tp), "ep": (ep, rank // etp % ep), "etp": (etp, rank % etp)} for rank in world]


def carried(
    specs: dict[Any, lk.Spec], tensors: dict[Any, torch.Tensor], wanted: dict[Any, lk.Spec], **how: str
) -> dict[Any, Any]:
    """What the plan derived from the tables writes into zeros."""
    out = {key: torch.zeros(spec.shape()) for key, spec in wanted.items()}
    lk.compile(specs, wanted, **how).run(tensors, out, backend="cpu")
    return out


def assert_carried(actual: dict[Any, torch.Tensor], expected: dict[Any, torch.Tensor]) -> None:
    assert sorted(map(str, actual)) == sorted(map(str, expected))
    for key, tensor in expected.items():
        lk.testing.assert_same_bytes(actual[key], tensor.contiguous(), key)


def judge(name: str, specs: dict[Any, lk.Spec], expected: dict[Any, torch.Tensor]) -> None:
    """The plans from the checkpoint to all ranks, and back, against the recipe's tensors."""
    hf, checkpoint = published(name)
    assert_carried(carried(hf, checkpoint, specs), expected)
    assert_carried(carried(specs, {key: expected[key].contiguous() for key in specs}, hf, replicas="first"), checkpoint)


# spec and storage of experts, as they are met together
BUILDS = [
    ("local", "sequential"),
    ("te", "te"),
    ("local", "grouped"),
    ("te", "grouped"),
    ("te", "stacked"),
    ("te", "stacked-transposed"),
]
MESHES = [{"tp": 1}, {"tp": 2, "etp": 2}, {"tp": 4, "ep": 2}, {"tp": 1, "ep": 2, "etp": 2}]
MEGATRON = [(name, *build, mesh) for name in SPARSE if "tied" not in name for build in BUILDS for mesh in MESHES]
MEGATRON += [
    (name, spec, "te", {"tp": tp})
    for name in ("qwen3", "qwen3-tied")
    for spec in ("local", "te")
    for tp in (1, 2, 4, 8)
]


@pytest.mark.parametrize(("name", "spec", "storage", "mesh"), MEGATRON, ids=str)
def test_megatron(name: str, spec: str, storage: str, mesh: dict[str, int]) -> None:
    family = lk.family(CONFIGS[name])
    _, checkpoint = published(name)
    specs, expected = {}, {}
    for number, rank in enumerate(ranks_of(**mesh)):
        found = family.specs("megatron", spec=spec, experts=storage, mesh=rank)
        specs |= {(number, key): one for key, one in found.items()}
        recipe = megatron(checkpoint, CONFIGS[name], spec, storage, rank)
        expected |= {(number, key): tensor for key, tensor in recipe}
    judge(name, specs, expected)


@pytest.mark.parametrize("storage", ["grouped", "te"])
def test_tensor_parallel_ranks_that_hold_experts_of_their_own(storage: str) -> None:
    """MindSpeed's tp-extend-ep: rank (ep, tp) holds whole experts, numbered over tp within ep."""
    config, family = CONFIGS["qwen3_moe"], lk.family(CONFIGS["qwen3_moe"])
    _, checkpoint = published("qwen3_moe")
    specs, expected = {}, {}
    for number in range(4):
        mesh = {"tp": (2, number % 2), "ep": (2, number // 2)}
        found = family.specs("megatron", spec="local", experts=storage, mesh=mesh, tp_extend_ep=True)
        specs |= {(number, key): one for key, one in found.items()}
        held = {"tp": (2, number % 2), "ep": (4, number), "etp": (1, 0)}
        expected |= {(number, key): tensor for key, tensor in megatron(checkpoint, config, "local", storage, held)}
    judge("qwen3_moe", specs, expected)


ENGINES = [
    (name, system, mesh)
    for name in CONFIGS
    for system in ("vllm", "vllm-ascend", "vllm-cpu")
    for mesh in ({"tp": 1}, {"tp": 2}, {"tp": 4}, {"tp": 2, "ep": 2})
    if name in SPARSE or "ep" not in mesh
]


@pytest.mark.parametrize(("name", "system", "mesh"), ENGINES, ids=str)
def test_engines(name: str, system: str, mesh: dict[str, int]) -> None:
    """tp 4 is above the two kv heads: each is then held by two ranks."""
    family = lk.family(CONFIGS[name])
    _, checkpoint = published(name)
    specs, expected = {}, {}
    (tp, ep) = (mesh["tp"], mesh.get("ep", 1))
    for number in range(max(tp, ep)):
        rank = {"tp": (tp, number % tp)} | ({"ep": (ep, number % ep)} if ep > 1 else {})
        specs |= {(number, key): one for key, one in family.specs(system, mesh=rank).items()}
        expected |= {(number, key): tensor for key, tensor in engine(checkpoint, CONFIGS[name], system, rank)}
    judge(name, specs, expected)


@pytest.mark.parametrize("name", CONFIGS)
def test_live_transformers(name: str) -> None:
    hf, checkpoint = published(name, mtp="none")
    expected = {key: value for key, value in checkpoint.items() if ".experts." not in key}
    if CONFIGS[name].get("tie_word_embeddings"):
        expected["lm_head.weight"] = checkpoint["model.embed_tokens.weight"]
    for layer in range(CONFIGS[name]["num_hidden_layers"]):
        at = f"model.layers.{layer}.mlp.experts."
        if f"{at}0.gate_proj.weight" in checkpoint:
            expected[f"{at}gate_up_proj"] = torch.stack([gate_up(checkpoint, f"{at}{e}.", 1, 0) for e in range(4)])
            expected[f"{at}down_proj"] = torch.stack([checkpoint[f"{at}{e}.down_proj.weight"] for e in range(4)])
    assert_carried(carried(hf, checkpoint, lk.family(CONFIGS[name]).specs("transformers")), expected)


@pytest.mark.parametrize("name", ["glm4_moe", "glm4_moe_lite"])
def test_copies_in_a_checkpoint(name: str) -> None:
    """Some checkpoints repeat the embedding and the head in the layer of multi-token prediction."""
    hf, checkpoint = published(name)
    full = lk.family(CONFIGS[name]).specs("hf", mtp="full")
    out = carried(hf, checkpoint, full)
    assert set(full) - set(hf) == {"model.layers.2.embed_tokens.weight", "model.layers.2.shared_head.head.weight"}
    lk.testing.assert_same_bytes(out["model.layers.2.embed_tokens.weight"], checkpoint["model.embed_tokens.weight"])
    lk.testing.assert_same_bytes(out["model.layers.2.shared_head.head.weight"], checkpoint["lm_head.weight"])


@pytest.mark.parametrize("name", CONFIGS)
def test_pipeline_stages(name: str) -> None:
    """Two stages of virtual chunks together hold the model; numbers of layers in names are local, in `at` global."""
    config = {**CONFIGS[name], "num_hidden_layers": 4}
    family = lk.family(config)
    hf = family.specs("hf")
    checkpoint = {key: lk.testing.tagged(spec, torch.float32) for key, spec in hf.items()}
    specs = {}
    for number, chunks in enumerate(([[0], [2]], [[1], [3]])):
        found = family.specs("megatron", layers=chunks, experts="te")
        specs |= {(number, key): spec for key, spec in found.items()}
    assert specs[1, "model1.decoder.layers.0.self_attention.linear_proj.weight"].at == {"l": 3}
    out = carried(hf, checkpoint, specs)
    assert_carried(carried(specs, out, hf, replicas="first"), checkpoint)

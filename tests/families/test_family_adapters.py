# SPDX-License-Identifier: Apache-2.0
"""Low-rank adapters, judged by what they are for: the product of both factors is a change of the base's weight.

On each rank of a trainer the product has the rows and columns of that rank's weight; moved by the base's plan, which
other tests judge, it must equal the product of the factors that the adapters' plan moved.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from recipes import Rank
from test_family_recipes import ranks
from tiny_configs import config_of

import layout_kernels as lk
from layout_kernels.families import adapters

RANK = 4
ATTENTION = {"linear_qkv": ("q_proj", "k_proj", "v_proj"), "linear_proj": ("o_proj",)}
MLP = {"linear_fc1": ("gate_proj", "up_proj"), "linear_fc2": ("down_proj",)}
LATENT = {"linear_q_down_proj": ("q_a_proj",), "linear_kv_down_proj": ("kv_a_proj_with_mqa",)}
LATENT |= {"linear_q_up_proj": ("q_b_proj",), "linear_kv_up_proj": ("kv_b_proj",), "linear_proj": ("o_proj",)}
CASES = [
    ("llama", "te", {**ATTENTION, **MLP}),
    ("qwen2", "local", ATTENTION),
    ("qwen3_5_text", "te", {**ATTENTION, **MLP}),
    ("glm4_moe", "local", {**ATTENTION, **MLP}),
    ("deepseek_v3", "te", {**LATENT, **MLP}),
    ("deepseek_v3", "local", LATENT),
    ("deepseek_v2", "local", LATENT),
]


def factors(found: dict[Any, torch.Tensor], ending: str) -> dict[Any, torch.Tensor]:
    """Factors by their module, and by their rank in front of it where they have one."""
    ranked = {
        key: tensor for key, tensor in found.items() if str(key[-1] if isinstance(key, tuple) else key).endswith(ending)
    }
    return {
        (key[0], key[1].removesuffix(ending)) if isinstance(key, tuple) else key.removesuffix(ending): tensor
        for key, tensor in ranked.items()
    }


def products_of_ranks(found: dict[Any, torch.Tensor], all_ranks: list[Rank], shapes: dict[Any, Any]) -> dict[Any, Any]:
    """What each rank's adapters add to its weight; a factor cut along the adapter's own rank or by the other
    dimension's shares is gathered first, as the modules do."""
    first, second = factors(found, ".adapter.linear_in.weight"), factors(found, ".adapter.linear_out.weight")
    made = {}
    for (number, module), one in first.items():
        size = all_ranks[number].etp[0] if ".experts." in module else all_ranks[number].tp[0]
        peers = range(number // size * size, number // size * size + size)
        if one.shape[0] < RANK:
            one = torch.cat([first[peer, module] for peer in peers])
        two, wanted = second[number, module], shapes[number, f"{module}.weight"]
        if two.shape[0] < wanted[0]:
            two = torch.cat([second[peer, module] for peer in peers])
        made[number, f"{module}.weight"] = (two @ one).contiguous()
    return made


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize(
    ("name", "spec", "targets"), CASES, ids=lambda case: str(case) if isinstance(case, str) else ""
)
def test_products(name: str, spec: str, targets: dict[str, tuple[str, ...]], tp: int) -> None:
    family, all_ranks = lk.family(config_of(name)), ranks(tp)
    trained, base = {}, {}
    for number, rank in enumerate(all_ranks):
        how: dict[str, Any] = {"spec": spec, "experts": "sequential", "mesh": vars(rank), "mtp": "none"}
        found = adapters(family, "megatron", rank=RANK, targets=targets, **how)
        trained |= {(number, key): one for key, one in found.items()}
        modules = {f"{key.split('.adapter.')[0]}.weight" for key in found}
        base |= {(number, key): one for key, one in family.specs("megatron", **how).items() if key in modules}
    published = [part for parts in targets.values() for part in parts]
    peft = adapters(family, "hf", rank=RANK, targets=published, mtp="none")
    weights = {
        key: one
        for key, one in family.specs("hf", mtp="none").items()
        if key.endswith(".weight") and key.split(".")[-2] in published
    }

    noise = torch.Generator().manual_seed(0)
    whole = {key: torch.randint(-4, 5, one.shape(), generator=noise).double() for key, one in peft.items()}
    for key in list(whole):  # a fused linear has one first factor
        for part, other in (("k_proj", "q_proj"), ("v_proj", "q_proj"), ("up_proj", "gate_proj")):
            if key.endswith(f"{part}.lora_A.weight") and key.replace(part, other) in whole:
                whole[key] = whole[key.replace(part, other)]
    shards = {key: torch.zeros(one.shape()).double() for key, one in trained.items()}
    lk.compile(peft, trained, replicas="first").run(whole, shards)

    one, two = (factors(whole, f".lora_{letter}.weight") for letter in "AB")
    added = {f"{module.removeprefix('base_model.model.')}.weight": two[module] @ one[module] for module in one}
    expected = {key: torch.zeros(spec.shape()).double() for key, spec in base.items()}
    lk.compile(weights, base, replicas="first").run({key: added[key] for key in weights}, expected)
    actual = products_of_ranks(shards, all_ranks, {key: tensor.shape for key, tensor in expected.items()})
    assert set(actual) == set(expected)
    for key, tensor in expected.items():
        lk.testing.assert_same_bytes(actual[key] + 0, tensor + 0, key)  # no negative zeros

    back = {key: torch.zeros(one.shape()).double() for key, one in peft.items()}
    lk.compile(trained, peft, replicas="first").run(shards, back)
    for key, tensor in whole.items():
        lk.testing.assert_same_bytes(back[key], tensor, key)


REFUSED = [
    ("'linear_fc3' is no linear of 'megatron'.*nearest is 'linear_fc[12]'", "megatron", ["linear_fc3"], {}),
    ("adapters of 'vllm' are not known", "vllm", ["qkv_proj"], {}),
    ("down='mindspeed' have no counterpart", "megatron", ["linear_qkv"], {"down": "mindspeed"}),
    ("up='mm-split' have no counterpart", "megatron", ["linear_v"], {"up": "mm-split"}),
]


@pytest.mark.parametrize(("message", "system", "targets", "how"), REFUSED, ids=lambda case: str(case)[:30])
def test_refused(message: str, system: str, targets: list[str], how: dict[str, Any]) -> None:
    with pytest.raises(lk.LayoutError, match=message):
        adapters(lk.family(config_of("deepseek_v3")), system, rank=4, targets=targets, **how)

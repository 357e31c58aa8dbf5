# SPDX-License-Identifier: Apache-2.0
"""Live engines that must not be written: what is said about each. The tests run it where vLLM is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import layout_kernels as lk
from layout_kernels.integrations import vllm as live

from .processes import say
from .settings import Settings


def start(folder: Path, config: dict[str, Any], draft: bool = True) -> Any:
    """An engine with weights of no meaning."""
    from vllm import LLM

    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    drafting = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}} if draft else {}
    return LLM(
        str(folder),
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="float32",
        max_model_len=128,
        load_format="dummy",
        **drafting,
    )


def main(settings: Settings, folder: Path) -> None:
    """Says {"event": what is wrong, "message": the refusal, or None where nothing was refused}."""
    config = settings.config
    family = lk.family(config)
    packed = start(folder / "packed", config)
    tell("packed linears", lambda: live.specs(live.runner(packed), family=family))
    live.use_plain_linears()
    llm = start(folder / "plain", config)
    runner = live.runner(llm)
    tell("nothing", lambda: live.specs(runner, family=family))
    for what, (holder, name, value) in spoiled(runner).items():
        right = getattr(holder, name)
        setattr(holder, name, value)
        tell(what, lambda: live.specs(runner, family=family))
        setattr(holder, name, right)
    tell_of_the_draft(runner, family)
    llm.sleep(level=1)
    tell("sleeping", lambda: live.runner(llm))
    without = {**config, "num_nextn_predict_layers": 0}
    undrafted = start(folder / "without", without, draft=False)
    alone = live.specs(live.runner(undrafted), family=lk.family(without))[0]
    say("no draft", message=None, drafts=[name for name in alone if name.startswith("draft.")], tensors=len(alone))


def tell(what: str, attempt: Callable[[], object]) -> None:
    """What an attempt is refused with."""
    try:
        attempt()
    except lk.LayoutError as error:
        say(what, message=str(error))
    else:
        say(what, message=None)


def spoiled(runner: Any) -> dict[str, tuple[Any, str, Any]]:
    """{what is wrong: (object, attribute, value)} of an engine that is right otherwise."""
    modules = dict(runner.get_model().named_modules())
    drafting = dict(runner.get_draft_model().named_modules())
    experts = next(module for module in drafting.values() if type(module).__name__ == "RoutedExperts")
    kernel = experts.quant_method.moe_kernel.fused_experts
    strange = type("NewLinearMethod", (), {})()
    return {
        "another processor": (kernel, "isa", "amx"),
        "zentorch": (kernel, "_use_zentorch", True),
        "a head that is not read": (modules["lm_head"], "cpu_linear", lambda x, weight, bias: x),
        "an unknown method": (modules["model.layers.0.mlp.down_proj"], "quant_method", strange),
        "expert parallelism": (experts, "local_num_experts", 4),
    }


def tell_of_the_draft(runner: Any, family: Any) -> None:
    """A trainer that holds no draft, in front of an engine that has one."""
    sources = family.specs("megatron", mtp="none", dtype=torch.float32)
    tell("a draft that is not sent", lambda: lk.compile(sources, live.specs(runner, family=family)[0]))
    tell("a draft left out", lambda: lk.compile(sources, live.specs(runner, family=family, draft=False)[0]))

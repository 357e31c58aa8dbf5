# SPDX-License-Identifier: Apache-2.0
"""The tables against transformers' own classes: names, shapes and numbers of live modules, and of what they save."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers_configs import TINY, build

import layout_kernels as lk
from layout_kernels.families.judged import JUDGES
from layout_kernels.families.models import MODELS

pytestmark = pytest.mark.peers

# Families without a class in transformers 5.24, and those that a class of another name judges.
WITHOUT_A_CLASS = {"mimo", "kimi_k2"}


def saved(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return {key: tensor for file in folder.glob("*.safetensors") for key, tensor in load_file(file).items()}


def test_every_family_has_a_judge_here() -> None:
    judged = {name.split(" ")[0] for name in TINY}
    assert judged == set(MODELS) - WITHOUT_A_CLASS == JUDGES["transformers"]


@pytest.mark.parametrize("name", TINY)
def test_live_modules_and_saved_checkpoint(name: str, tmp_path: Path) -> None:
    """Names and shapes are equal; and each of the two, moved by a plan, is the other, number for number."""
    import torch

    model = build(name)
    with torch.no_grad():
        for number, tensor in enumerate(model.parameters()):
            tensor.copy_(torch.arange(tensor.numel()).reshape(tensor.shape) + number * 2**14)
    live = {key: tensor.detach() for key, tensor in model.state_dict().items()}
    model.save_pretrained(tmp_path)
    published = saved(tmp_path)

    family = lk.family(tmp_path)
    assert family.model_type == json.loads((tmp_path / "config.json").read_text())["model_type"] == name.split(" ")[0]
    specs, hf = family.specs("transformers"), family.specs("hf", mtp="none")
    assert {key: spec.shape() for key, spec in specs.items()} == {k: tuple(t.shape) for k, t in live.items()}
    assert {key: spec.shape() for key, spec in hf.items()} == {k: tuple(t.shape) for k, t in published.items()}
    specs = {key: spec.replace(dtype=None) for key, spec in specs.items()}
    hf = {key: spec.replace(dtype=None) for key, spec in hf.items()}
    for sources, tensors, targets, wanted in ((hf, published, specs, live), (specs, live, hf, published)):
        out = {key: torch.empty_like(tensor, memory_format=torch.contiguous_format) for key, tensor in wanted.items()}
        lk.compile(sources, targets, replicas="first").run(tensors, out)
        for key, tensor in wanted.items():
            lk.testing.assert_same_bytes(out[key], tensor, key)


@pytest.mark.parametrize("name", [name for name in TINY if " " not in name])
def test_dtypes_that_transformers_fixes(name: str, tmp_path: Path) -> None:
    """float32 in a model of bfloat16: what the tables say is what transformers loads."""
    import torch

    model = build(name)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, dtype=torch.bfloat16).state_dict()
    specs = lk.family(model.config).specs("transformers", dtype=torch.bfloat16)
    assert {key: spec.dtype for key, spec in specs.items()} == {key: tensor.dtype for key, tensor in loaded.items()}

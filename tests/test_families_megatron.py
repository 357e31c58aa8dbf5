# SPDX-License-Identifier: Apache-2.0
"""Specs of live Megatron-Core models, with modules of the same class names and without Megatron-Core.

Real models are in ``tests/peers/test_specs_of_megatron.py``; here is what those do not have: stages, chunks, wrappers,
MindSpeed's classes, and everything that is refused.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import layout_kernels as lk
from layout_kernels.integrations import megatron

CONFIG: dict[str, Any] = {
    "model_type": "glm4_moe",
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "intermediate_size": 24,
    "moe_intermediate_size": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 1,
    "use_qk_norm": True,
    "attention_bias": True,
}
SETTINGS = {
    "num_layers": 4,
    "hidden_size": 16,
    "ffn_hidden_size": 24,
    "num_attention_heads": 4,
    "num_query_groups": 2,
    "kv_channels": 4,
    "qk_layernorm": True,
    "add_qkv_bias": True,
    "add_bias_linear": False,
    "gated_linear_unit": True,
    "num_moe_experts": 4,
    "moe_ffn_hidden_size": 8,
    "moe_shared_expert_intermediate_size": 8,
    "moe_router_enable_expert_bias": True,
    "mtp_num_layers": 1,
}
GROUPED = {"GroupedMLP": "grouped", "MindSpeedGmmExperts": "grouped", "MindSpeedTpExtendEpGmmExperts": "grouped"}


def module(kind: str, **fields: Any) -> torch.nn.Module:
    """An empty module of a class of that name; tensors become parameters, modules and the rest attributes."""
    made: torch.nn.Module = type(kind, (torch.nn.Module,), {})()
    for name, value in fields.items():
        setattr(made, name, torch.nn.Parameter(value) if isinstance(value, torch.Tensor) else value)
    return made


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


def linear(*shape: int, kind: str = "ColumnParallelLinear", bias: bool = False) -> torch.nn.Module:
    return module(kind, weight=zeros(*shape), **({"bias": zeros(shape[0])} if bias else {}))


def norm(size: int) -> torch.nn.Module:
    return torch.nn.RMSNorm(size)


class Model:
    """Builds one chunk of a model for one rank."""

    def __init__(self, experts: str = "GroupedMLP", tp: int = 1, ep: int = 1, etp: int = 1) -> None:
        self.experts, self.tp, self.ep, self.etp = experts, tp, ep, etp

    def chunk(self, layers: list[int], drafts: int = 0, **settings: Any) -> torch.nn.Module:
        first, last = 0 in layers, 3 in layers
        fields: dict[str, Any] = {}
        vocabulary = linear(128 // self.tp, 16, kind="VocabParallelEmbedding")
        if first or drafts:
            fields["embedding"] = module("LanguageModelEmbedding", word_embeddings=vocabulary)
        final = {"final_layernorm": norm(16)} if last else {}
        stack = torch.nn.ModuleList(self.layer(number) for number in layers)
        fields["decoder"] = module("TransformerBlock", layers=stack, **final)
        if last:
            fields["output_layer"] = linear(128 // self.tp, 16)
        if drafts:
            fields["mtp"] = module("MultiTokenPredictionBlock", layers=torch.nn.ModuleList([self.draft()]))
        return module(
            "GPTModel",
            config=SimpleNamespace(**{**SETTINGS, **settings}),
            vocab_size=128,
            pre_process=first,
            post_process=last,
            share_embeddings_and_output_weights=False,
            **fields,
        )

    def draft(self) -> torch.nn.Module:
        return module(
            "MultiTokenPredictionLayer",
            layer_number=1,
            enorm=norm(16),
            hnorm=norm(16),
            eh_proj=linear(16 // self.tp, 32),
            final_layernorm=norm(16),
            transformer_layer=self.layer(4),
        )

    def layer(self, number: int) -> torch.nn.Module:
        tp = self.tp
        attention = module(
            "SelfAttention",
            linear_qkv=linear(32 // tp, 16, bias=True),
            linear_proj=linear(16, 16 // tp, kind="RowParallelLinear"),
            q_layernorm=norm(4),
            k_layernorm=norm(4),
        )
        dense = {"linear_fc1": linear(48 // tp, 16), "linear_fc2": linear(16, 24 // tp, kind="RowParallelLinear")}
        mlp = self.sparse() if number else module("MLP", **dense)
        return module(
            "TransformerLayer",
            layer_number=number + 1,
            input_layernorm=norm(16),
            self_attention=attention,
            pre_mlp_layernorm=norm(16),
            mlp=mlp,
        )

    def sparse(self) -> torch.nn.Module:
        router = linear(4, 16, kind="TopKRouter")
        router.register_buffer("expert_bias", torch.zeros(4))
        router.register_buffer("local_tokens_per_expert", torch.zeros(4))
        router.register_buffer("scratch", torch.zeros(7), persistent=False)
        shared = {"linear_fc1": linear(16 // self.tp, 16), "linear_fc2": linear(16, 8 // self.tp)}
        return module(
            "MoELayer", router=router, experts=self.storage(), shared_experts=module("SharedExpertMLP", **shared)
        )

    def storage(self) -> torch.nn.Module:
        width, held = 8 // self.etp, 4 // self.ep
        if self.experts in GROUPED:
            return module(self.experts, weight1=zeros(16, held * 2 * width), weight2=zeros(held * width, 16))
        kinds = (self.experts + "ColumnParallelGroupedLinear", self.experts + "RowParallelGroupedLinear")
        one = linear(held, 2 * width, 16, kind=kinds[0])
        return module("TEGroupedMLP", linear_fc1=one, linear_fc2=linear(held, 16, width, kind=kinds[1]))


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets what Megatron-Core's parallel state says."""

    def place(**mesh: tuple[int, int]) -> None:
        monkeypatch.setattr(megatron, "mesh", lambda: {"tp": (1, 0), "ep": (1, 0), "etp": (1, 0), **mesh})

    place()
    return place


FAMILY = lk.family(CONFIG)
WHOLE = [0, 1, 2, 3]


def wanted(**options: Any) -> dict[str, lk.Spec]:
    given = {"spec": "local", "experts": "grouped", **options}
    return {name: spec.replace(dtype=None) for name, spec in FAMILY.specs("megatron", **given).items()}


def test_one_chunk() -> None:
    model = Model().chunk(WHOLE, drafts=1)
    specs, tensors = megatron.specs(model, family=FAMILY)
    assert specs == wanted()
    assert list(specs) == list(tensors)
    assert tensors["decoder.layers.1.mlp.router.expert_bias"] is model.decoder.layers[1].mlp.router.expert_bias


def test_wrappers_leave_no_trace_in_names() -> None:
    model = Model().chunk(WHOLE, drafts=1)
    wrapped = module("DistributedDataParallel", module=module("Float16Module", module=model))
    assert megatron.specs(wrapped)[0] == megatron.specs([model])[0] == megatron.specs(model)[0]


def test_without_a_family_the_vocabulary_is_as_the_model_has_it() -> None:
    spec = megatron.specs(Model().chunk(WHOLE, drafts=1))[0]["output_layer.weight"]
    assert (spec.dims["v"], spec.dims["p"]) == (128, 0)  # type: ignore[index]
    spec = megatron.specs(Model().chunk(WHOLE, drafts=1), family=FAMILY)[0]["output_layer.weight"]
    assert (spec.dims["v"], spec.dims["p"]) == (50, 78)  # type: ignore[index]


def test_chunks_of_a_virtual_pipeline() -> None:
    chunks = [Model().chunk([1]), Model().chunk([3], drafts=1)]
    specs, _ = megatron.specs(chunks, family=FAMILY)
    assert specs == wanted(layers=[[1], [3]])
    assert specs["model1.decoder.layers.0.mlp.experts.weight1"].at == {"l": 3}


def test_ranks(alone: Any) -> None:
    alone(tp=(2, 1), ep=(2, 1), etp=(1, 0))
    specs, _ = megatron.specs(Model(tp=2, ep=2).chunk(WHOLE, drafts=1), family=FAMILY)
    assert specs == wanted(mesh={"tp": (2, 1), "ep": (2, 1), "etp": (1, 0)}, vocab_multiple=64)


def test_mindspeed_extends_expert_parallelism(alone: Any) -> None:
    alone(tp=(2, 1), ep=(2, 0), etp=(2, 1))
    model = Model("MindSpeedTpExtendEpGmmExperts", tp=2, ep=4).chunk(WHOLE, drafts=1)
    specs, _ = megatron.specs(model, family=FAMILY)
    assert specs == wanted(mesh={"tp": (2, 1), "ep": (2, 0)}, tp_extend_ep=True, vocab_multiple=64)
    assert specs["decoder.layers.1.mlp.experts.weight1"].mesh["ep"] == (4, 1)


def test_gate_and_up_in_turn() -> None:
    """A setting, which no shape shows, tells it."""
    settings = {"moe_mlp_glu_interleave_size": 4, "moe_shared_expert_glu_interleave_size": 2}
    model = Model("MindSpeedTEPerformance").chunk(WHOLE, drafts=1, **settings)
    specs, _ = megatron.specs(model, family=FAMILY, experts="stacked")
    assert specs == wanted(experts="stacked", glu_interleave=4, shared_glu_interleave=2)


def test_a_class_that_does_not_tell_its_layout_wants_to_be_told() -> None:
    model = Model("MindSpeedTEPerformance").chunk(WHOLE, drafts=1)
    with pytest.raises(
        lk.LayoutError, match="'MindSpeedTEPerformanceColumnParallelGroupedLinear' holds one layout in some"
    ):
        megatron.specs(model)
    for experts in ("stacked", "stacked-transposed"):
        assert megatron.specs(model, family=FAMILY, experts=experts)[0] == wanted(experts=experts)
    with pytest.raises(lk.LayoutError, match="option experts 'packed' is not known"):
        megatron.specs(model, experts="packed")


class TestRefused:
    def test_unknown_class(self) -> None:
        model = Model().chunk(WHOLE, drafts=1)
        model.decoder.layers[2].mlp.experts = module("FusedExperts", weight1=zeros(16, 64))
        with pytest.raises(
            lk.LayoutError, match=r"'decoder\.layers\.2\.mlp\.experts' is a 'FusedExperts' and holds \['weight1'\]"
        ):
            megatron.specs(model)

    def test_unknown_layer(self) -> None:
        model = Model().chunk(WHOLE, drafts=1)
        model.decoder.layers[2].self_attention = module("MambaMixer")
        with pytest.raises(lk.LayoutError, match=r"layer 3: 'MambaMixer' is not known.*'SelfAttention'"):
            megatron.specs(model)

    def test_unknown_model(self) -> None:
        with pytest.raises(lk.LayoutError, match="model class 'T5Model' is not known"):
            megatron.specs(module("T5Model"))

    def test_wrong_shape(self) -> None:
        model = Model().chunk(WHOLE, drafts=1)
        model.decoder.layers[1].self_attention.linear_proj.weight = torch.nn.Parameter(zeros(16, 12))
        with pytest.raises(
            lk.LayoutError, match=r"layers\.1.*linear_proj\.weight' has shape \(16, 12\), but.*says \(16, 16\)"
        ):
            megatron.specs(model)

    def test_tensor_without_a_row(self) -> None:
        model = Model().chunk(WHOLE, drafts=1)
        model.decoder.layers[1].mlp.router.bias = torch.nn.Parameter(zeros(4))
        with pytest.raises(lk.LayoutError, match=r"router\.bias' has no row in the tables"):
            megatron.specs(model)

    def test_row_without_a_tensor(self) -> None:
        model = Model().chunk(WHOLE, drafts=1)
        del model.decoder.layers[1].self_attention.q_layernorm
        with pytest.raises(
            lk.LayoutError, match=r"layers\.1.*q_layernorm\.weight' is in the tables but not in the model"
        ):
            megatron.specs(model)

    def test_settings_that_no_shape_shows(self) -> None:
        with pytest.raises(lk.LayoutError, match=r"moe_latent_size=32: .* has no row in the tables"):
            megatron.specs(Model().chunk(WHOLE, drafts=1, moe_latent_size=32))

    def test_blocks_in_turn_in_a_storage_that_does_not_have_them(self) -> None:
        with pytest.raises(lk.LayoutError, match="not known in this storage of experts"):
            megatron.specs(Model().chunk(WHOLE, drafts=1, moe_mlp_glu_interleave_size=4))

    def test_an_output_gate_needs_its_rows(self) -> None:
        with pytest.raises(lk.LayoutError, match=r"linear_qkv\.weight' has shape \(32, 16\).*gate.*says \(48, 16\)"):
            megatron.specs(Model().chunk(WHOLE, drafts=1, attention_output_gate=True))

    def test_not_gated(self) -> None:
        with pytest.raises(lk.LayoutError, match="gated_linear_unit"):
            megatron.specs(Model().chunk(WHOLE, drafts=1, gated_linear_unit=False))

# SPDX-License-Identifier: Apache-2.0
"""Reading configs, choosing what a rank holds, and what is refused."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import layout_kernels as lk
from layout_kernels.families import describe, markdown, published
from layout_kernels.families.expression import evaluate
from layout_kernels.families.judged import JUDGES
from layout_kernels.families.models import MODELS
from layout_kernels.families.published import parameters
from layout_kernels.families.systems import (
    DOWN,
    EXPERT_COLUMNS,
    INDEXERS,
    KERNELS,
    MODULES,
    STORAGES,
    SYSTEMS,
    UP,
    columns,
    settle,
)
from layout_kernels.families.table import REFUSED as REFUSES
from layout_kernels.families.table import Row, row

FLASH = published("glm-4.7-flash")
QWEN = published("qwen3-30b-a3b")
SHORT = {**QWEN, "num_hidden_layers": 2}


class TestConfig:
    def test_mapping_path_folder_and_object_say_the_same(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(json.dumps(SHORT))
        config = type("Config", (), {"to_dict": lambda self: SHORT})()
        wanted = lk.family(SHORT).specs("vllm")
        assert all(lk.family(c).specs("vllm") == wanted for c in (tmp_path, str(tmp_path / "config.json"), config))

    def test_an_unknown_model_type_lists_the_known_ones(self) -> None:
        with pytest.raises(lk.LayoutError, match=r"'qwen4'.*'glm4_moe_lite'.*the nearest is 'qwen3'.*models\.py"):
            lk.family({"model_type": "qwen4"})

    @pytest.mark.parametrize("field", ["hidden_size", "num_key_value_heads", "moe_intermediate_size", "num_experts"])
    def test_a_missing_field_is_named(self, field: str) -> None:
        config = {key: value for key, value in SHORT.items() if key != field}
        with pytest.raises(lk.LayoutError, match=f"'{field}'.*'qwen3_moe' needs for"):
            lk.family(config).specs("hf")

    @pytest.mark.parametrize("spelling", ["num_experts", "num_local_experts", "n_routed_experts"])
    def test_every_spelling_is_read(self, spelling: str) -> None:
        config = {key: value for key, value in SHORT.items() if key != "num_experts"}
        assert lk.family(config | {spelling: 128}).specs("hf") == lk.family(SHORT).specs("hf")

    def test_two_spellings_that_disagree_are_refused(self) -> None:
        with pytest.raises(lk.LayoutError, match=r"experts twice.*128.*64"):
            lk.family({**SHORT, "num_local_experts": 64}).specs("hf")

    def test_what_has_no_row_is_refused(self) -> None:
        with pytest.raises(lk.LayoutError, match="latent attention with biases"):
            lk.family({**FLASH, "attention_bias": True})

    def test_heads_that_do_not_divide_are_refused(self) -> None:
        with pytest.raises(lk.LayoutError, match="30 does not divide into 4 equal parts, in 'heads / kv_heads'"):
            lk.family({**SHORT, "num_attention_heads": 30}).specs("hf")

    @pytest.mark.parametrize("config", [7, [], "no/such/folder"])
    def test_what_is_no_config_is_refused(self, config: Any) -> None:
        with pytest.raises(lk.LayoutError, match="config"):
            lk.family(config)


class TestSpecs:
    def test_specs_are_complete(self) -> None:
        """Sizes are bound, coordinates in range, shapes computable: nothing is left to the plan."""
        for config, system in itertools.product(({**FLASH, "num_hidden_layers": 3}, SHORT), SYSTEMS):
            for name, spec in lk.family(config).specs(system).items():
                assert spec.of, name
                assert spec.dims is not None, name
                assert spec.shape(), name
                assert all(0 <= at < spec.dims[axis] for axis, at in spec.at.items()), name
                assert {"l"} <= set(spec.at) or not spec.of.startswith(("layers.", "mtp.")), name

    def test_layers_of_multi_token_prediction_are_numbered_on(self) -> None:
        spec = lk.family(FLASH).specs("hf")["model.layers.47.eh_proj.weight"]
        assert (spec.of, dict(spec.at), spec.dims["l"]) == ("mtp.eh_proj.weight", {"l": 47}, 48)  # type: ignore[index]
        assert "model.layers.47.mlp.experts.63.up_proj.weight" in lk.family(FLASH).specs("hf")
        assert not any(name.startswith("model.layers.47.") for name in lk.family(FLASH).specs("hf", mtp="none"))

    def test_replicated_tensors_are_equal_on_all_ranks(self) -> None:
        """Only the coordinates that a layout uses are in its Spec, so that replicas are seen as such."""
        one, two = (lk.family(FLASH).specs("vllm", mesh={"tp": (2, rank)}) for rank in (0, 1))
        name = "model.layers.3.self_attn.fused_qkv_a_proj.weight"
        assert one[name] == two[name]
        assert (
            one["model.layers.3.mlp.experts.routed_experts.w2_weight"]
            != two["model.layers.3.mlp.experts.routed_experts.w2_weight"]
        )

    def test_dtypes(self) -> None:
        """What a system fixes stays, whatever is asked for the rest."""
        specs = lk.family(FLASH).specs("vllm", dtype="bfloat16")
        kinds = {
            name.split(".", 3)[-1]: spec.dtype for name, spec in specs.items() if name.startswith("model.layers.2.")
        }
        fixed = {name for name, dtype in kinds.items() if dtype == torch.float32}
        assert fixed == {"mlp.gate.weight", "mlp.gate.e_score_correction_bias"}
        assert {dtype for name, dtype in kinds.items() if name not in fixed} == {torch.bfloat16}
        assert lk.family(QWEN).specs("vllm")["model.layers.0.mlp.gate.weight"].dtype is None

    @pytest.mark.parametrize(("system", "rows", "pad"), [("megatron", 151552 // 4, 0), ("vllm", 151552 // 4, 0)])
    def test_a_vocabulary_that_needs_no_padding(self, system: str, rows: int, pad: int) -> None:
        specs = lk.family(published("glm-4.5")).specs(system, mesh={"tp": (4, 3)})
        name = "embedding.word_embeddings.weight" if system == "megatron" else "model.embed_tokens.weight"
        assert specs[name].shape() == (rows, 5120)
        assert specs[name].dims["p"] == pad  # type: ignore[index]

    @pytest.mark.parametrize(("multiple", "rows"), [(128, 152064 // 4), (1, 151936 // 4), (1000, 152000 // 4)])
    def test_padded_vocabulary_in_training(self, multiple: int, rows: int) -> None:
        specs = lk.family(QWEN).specs("megatron", mesh={"tp": (4, 3)}, vocab_multiple=multiple)
        head = specs["output_layer.weight"]
        assert head.shape() == (rows, 2048)
        assert dict(head.padding) == {"pad": "keep"}

    def test_padding_of_engines_is_zero(self) -> None:
        config = {**QWEN, "vocab_size": 500, "moe_intermediate_size": 40}
        specs = lk.family(config).specs("vllm-cpu", mesh={"tp": (2, 1)})
        assert specs["lm_head.weight"].shape() == (256, 2048)
        assert dict(specs["lm_head.weight"].padding) == {"pad": "zero"}
        w13 = specs["model.layers.0.mlp.experts.routed_experts.w13_weight"]
        assert w13.shape() == (128, 2 * 32, 2048)  # 20 a rank, filled to 32 in each half
        assert dict(w13.padding) == {"il": "zero"}

    def test_repeated_kv_heads(self) -> None:
        """Four kv heads on eight ranks: rank 5 holds head 2."""
        spec = lk.family(QWEN).specs("vllm", mesh={"tp": (8, 5)})["model.layers.0.self_attn.qkv_proj.weight"]
        assert dict(spec.mesh) == {"tp": (8, 5), "kv": (4, 2)}
        assert spec.shape() == ((4 + 1 + 1) * 128, 2048)

    def test_draft_model(self) -> None:
        family = lk.family(FLASH)
        everything, target, draft = (family.specs("vllm", part=part) for part in ("all", "target", "draft"))
        assert "model.embed_tokens.weight" in target.keys() & draft.keys()
        assert everything == target | {f"draft.{name}": spec for name, spec in draft.items()}

    def test_experts_in_load_balanced_slots(self) -> None:
        spec = lk.family(QWEN).specs("vllm", mesh={"ep": [5, 3, 5]})[
            "model.layers.0.mlp.experts.routed_experts.w13_weight"
        ]
        assert spec.mesh["ep"] == [5, 3, 5]
        assert spec.shape() == (3, 2 * 768, 2048)


class TestNamesOfVersions:
    def test_layers_of_multi_token_prediction(self) -> None:
        one, two = (
            lk.family(FLASH).specs("megatron", mtp_layer=name) for name in ("transformer_layer", "mtp_model_layer")
        )
        assert {key.replace("transformer_layer", "mtp_model_layer"): spec for key, spec in one.items()} == two

    def test_convolutions_of_mamba(self) -> None:
        config = {"model_type": "nemotron_h", "vocab_size": 8, "hidden_size": 8, "hybrid_override_pattern": "M"}
        config |= {"mamba_num_heads": 4, "mamba_head_dim": 2, "n_groups": 2, "ssm_state_size": 3, "conv_kernel": 4}
        old, new = (set(lk.family(config).specs("megatron", mamba_conv=name)) for name in ("conv1d.", "conv1d_"))
        assert old - new == {"decoder.layers.0.mixer.conv1d.weight", "decoder.layers.0.mixer.conv1d.bias"}
        assert new - old == {"decoder.layers.0.mixer.conv1d_weight", "decoder.layers.0.mixer.conv1d_bias"}


class TestStages:
    def test_even_stages_number_their_layers_from_zero(self) -> None:
        specs = lk.family(QWEN).specs("megatron", mesh={"pp": (4, 2)}, experts="grouped")
        norm = specs["decoder.layers.0.self_attention.linear_qkv.layer_norm_weight"]
        assert norm.at == {"l": 24}
        assert not {"embedding.word_embeddings.weight", "output_layer.weight"} & specs.keys()

    def test_uneven_stages(self) -> None:
        family = lk.family(FLASH)
        first = family.specs("megatron", layers=range(20), experts="grouped")
        last = family.specs("megatron", layers=range(20, 47), experts="grouped")
        assert "embedding.word_embeddings.weight" in first
        assert "decoder.final_layernorm.weight" not in first
        assert last["decoder.layers.26.self_attention.linear_proj.weight"].at == {"l": 46}
        # the last stage has multi-token prediction, which embeds too
        assert {"embedding.word_embeddings.weight", "mtp.layers.0.eh_proj.weight", "output_layer.weight"} <= last.keys()

    def test_stages_of_embedding_or_head_alone(self) -> None:
        specs = lk.family(QWEN).specs(
            "megatron", layers=[0, 1], pre_process=False, post_process=True, experts="grouped"
        )
        assert "embedding.word_embeddings.weight" not in specs
        assert "output_layer.weight" in specs

    def test_a_tied_head_is_a_copy_on_the_last_stage(self) -> None:
        family = lk.family(published("qwen3-0.6b"))
        alone = family.specs("megatron")
        first, last = (family.specs("megatron", mesh={"pp": (2, stage)}) for stage in (0, 1))
        assert "output_layer.weight" not in alone
        assert "output_layer.weight" not in first
        assert last["output_layer.weight"] == first["embedding.word_embeddings.weight"]

    def test_virtual_chunks(self) -> None:
        specs = lk.family(QWEN).specs("megatron", layers=[[0, 1], [46, 47]], experts="grouped")
        assert specs["model1.decoder.layers.1.mlp.experts.weight1"].at == {"l": 47}
        assert {"model0.embedding.word_embeddings.weight", "model1.output_layer.weight"} <= specs.keys()
        assert all(name.startswith(("model0.", "model1.")) for name in specs)


REFUSED = [
    ("system 'vllm-gpu' is not known.*nearest is 'vllm", "vllm-gpu", {}),
    ("no option 'expert'.*nearest is 'experts'", "megatron", {"expert": "te"}),
    ("option experts 'packed' is not known", "megatron", {"experts": "packed"}),
    ("option spec 'TE' is not known", "megatron", {"spec": "TE"}),
    ("option mtp 'all' is not known", "megatron", {"mtp": "all"}),
    ("option part 'drafts' is not known", "vllm", {"part": "drafts"}),
    ("mesh 'tpp' is not known.*nearest is 'tp'", "vllm", {"mesh": {"tpp": (2, 0)}}),
    ("mesh 'tp' is 2: ", "vllm", {"mesh": {"tp": 2}}),
    ("mesh 'tp' is \\(2, 2\\)", "vllm", {"mesh": {"tp": (2, 2)}}),
    ("'hf' holds whole models", "hf", {"mesh": {"tp": (2, 0)}}),
    ("47 layers do not divide into 2 equal stages", "megatron", {"mesh": {"pp": (2, 0)}}),
    ("layer 47 is none of the model's 47", "megatron", {"layers": [46, 47]}),
    ("name one twice", "megatron", {"layers": [3, 3]}),
    ("layers is 3", "megatron", {"layers": 3}),
    ("experts: .*64 positions do not divide into 3", "megatron", {"mesh": {"ep": (3, 0)}}),
    ("keeps experts whole", "megatron", {"mesh": {"tp": (2, 0), "etp": (2, 0)}, "tp_extend_ep": True}),
    ("nope' is no dtype", "megatron", {"dtype": "nope"}),
]


@pytest.mark.parametrize(("message", "system", "options"), REFUSED, ids=[message for message, _, _ in REFUSED])
def test_refused(message: str, system: str, options: dict[str, Any]) -> None:
    with pytest.raises(lk.LayoutError, match=message):
        [spec.shape() for spec in lk.family(FLASH).specs(system, **options).values()]


def test_too_many_ranks_for_the_kv_heads() -> None:
    with pytest.raises(lk.LayoutError, match="6 tensor-parallel ranks cannot share 4 kv heads"):
        lk.family(QWEN).specs("vllm", mesh={"tp": (6, 0)})


def all_rows() -> list[Row]:
    blocks = (block for model in MODELS.values() for block in (*model.model, *model.layer, *model.mtp))
    return [line for block in blocks for line in block.rows]


def refused(column: str) -> bool:
    return column.startswith(REFUSES)


class TestTables:
    def test_every_row_says_what_every_system_makes_of_it(self) -> None:
        """A row without a column for a system is a mistake; an empty one says that there is no such tensor, a refused
        one that there is one which the tables do not describe."""
        kernels = [(name, kernel) for name, known in KERNELS.items() for kernel in known if not refused(known[kernel])]
        paths = [columns(name, settle(name, {"kernel": kernel})) for name, kernel in kernels]
        paths += [columns(name, settle(name, {})) for name in SYSTEMS if name not in KERNELS]
        choices = itertools.product(MODULES, STORAGES, DOWN, UP, INDEXERS, (0, 32))
        for spec, experts, down, up, indexer, blocks in choices:
            options = {"spec": spec, "experts": experts, "down": down, "up": up, "indexer": indexer}
            paths.append(columns("megatron", settle("megatron", {**options, "glu_interleave": blocks})))
        for line, path in itertools.product({id(line): line for line in all_rows()}.values(), set(paths)):
            assert any(column in line.columns or column in line.refused for column in path), (line.of, path)

    def test_kernels_of_experts_never_fall_back_on_another(self) -> None:
        for line in all_rows():
            if line.of.startswith("layers.experts."):
                assert {*line.columns, *line.refused} >= EXPERT_COLUMNS, line.of

    def test_a_row_without_a_column_is_named(self) -> None:
        with pytest.raises(lk.LayoutError, match="row 'x' of the tables has no column for 'vllm'"):
            row("x", hf="a = h").cells(["vllm"])

    @pytest.mark.parametrize("text", ["weight", "weight = ", "weight == h", "weight = h/", "two names = h"])
    def test_what_is_no_cell_is_refused(self, text: str) -> None:
        with pytest.raises(lk.LayoutError):
            row("x", hf=text)

    def test_cells(self) -> None:
        (cell,) = row("x", hf="w = e h as h e in float32 if tied and not first").columns["hf"]
        assert (cell.name, str(cell.layout), str(cell.declared)) == ("w", "e h", "h e")
        assert (cell.dtype, cell.condition) == ("float32", "tied and not first")

    def test_table_for_people(self) -> None:
        """Generated from the rows: what a family's experts do not have is not said of it."""
        lines = {line["model_type"].strip("`"): line for line in describe()}
        assert set(lines) == set(MODELS)
        assert lines["gpt_oss"]["training"] == "Megatron-Core (sequential, te), Hugging Face"
        assert lines["glm4_moe"]["training"] == "Megatron-Core, Hugging Face"
        assert "vllm-cpu" in lines["qwen3_moe"]["engines"]
        assert "vllm-cpu" not in lines["gpt_oss"]["engines"]
        assert lines["mimo"]["judged"] == "recipes"
        assert markdown().count("\n") == len(MODELS) + 1
        assert all(family_judged <= set(MODELS) for family_judged in JUDGES.values())


class TestExpressions:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("a / 4 + 1", 4),
            ("up(a, 8) - a", 4),
            ("a * 2 if b else a", 24),
            ("not b or c", 0),
            ("a in (1, 12) and b is not None", True),
            ("kinds[1] == 'sparse'", True),
            ("(a + 1) % 5", 3),
        ],
    )
    def test_values(self, text: str, value: Any) -> None:
        assert evaluate(text, {"a": 12, "b": True, "c": 0, "kinds": ["dense", "sparse"]}.__getitem__) == value

    @pytest.mark.parametrize("text", ["a / 5", "a +", "__import__('os')", "a.real", "[a]", "kinds[7]", "lambda: a"])
    def test_refused(self, text: str) -> None:
        with pytest.raises(lk.LayoutError):
            evaluate(text, {"a": 12, "kinds": []}.__getitem__)


class TestPublished:
    def test_well_known_sizes(self) -> None:
        """In thousands of millions of parameters, as the models are called; multi-token prediction counts too."""
        billions = {
            name: parameters(published(name)) / 1e9
            for name in ("qwen3-30b-a3b", "qwen3-235b-a22b", "qwen3-8b", "glm-4.5")
        }
        assert billions == pytest.approx(
            {"qwen3-30b-a3b": 30.5, "qwen3-235b-a22b": 235.1, "qwen3-8b": 8.2, "glm-4.5": 358}, rel=0.01
        )

    @pytest.mark.parametrize("name", ["glm-4.7-flash", "glm-4.5-air", "qwen3-30b-a3b", "qwen3-0.6b"])
    @pytest.mark.parametrize("scale", [1, 10, 100])
    def test_scale(self, name: str, scale: int) -> None:
        small = published(name, scale)
        assert parameters(small) == pytest.approx(parameters(published(name)) / scale, rel=0.25)
        hidden = small["hidden_size"]
        assert all(hidden not in (small[key], 2 * small[key]) for key in small if key.endswith("intermediate_size"))
        for system in ("megatron", "vllm", "vllm-ascend", "vllm-cpu"):  # tensor parallelism of 4 divides everything
            mesh = {"tp": (4, 3), "ep": (4, 1), "etp": (1, 0)} if system == "megatron" else {"tp": (4, 3)}
            assert all(spec.shape() for spec in lk.family(small).specs(system, mesh=mesh).values())

    def test_what_cannot_be(self) -> None:
        with pytest.raises(lk.LayoutError, match=r"'glm-4\.8-flash' is not known.*nearest is 'glm-4\.7-flash'"):
            published("glm-4.8-flash")
        with pytest.raises(lk.LayoutError, match="cannot be shrunk by 1000000"):
            published("qwen3-0.6b", 1_000_000)
        with pytest.raises(lk.LayoutError, match="at least 1"):
            published("qwen3-0.6b", 0)

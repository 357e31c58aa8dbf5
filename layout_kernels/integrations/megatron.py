# SPDX-License-Identifier: Apache-2.0
"""Live Megatron-Core models: what each tensor of a rank holds, told by the classes of its modules and never by a shape.

The layouts are those of the tables in ``layout_kernels/families/blocks/``; here stands only which class of module
reads which column. Written against Megatron-Core 0.16.1 and MindSpeed 26.1.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from ..errors import LayoutError, nearest
from ..families.blocks import (
    DENSE_MLP,
    EMBEDDING,
    GROUPED_QUERY_ATTENTION,
    LATENT_ATTENTION,
    MULTI_TOKEN_PREDICTION,
    ROUTED_EXPERTS,
    SHARED_EXPERT,
)
from ..families.expand import View, expand
from ..families.family import Family
from ..families.quantities import DERIVED, Quantities
from ..families.systems import STORAGES, place
from ..families.table import Block, choose
from ..spec import Spec

WRAPPERS = frozenset({"DistributedDataParallel", "Float16Module"})  # hold the model as `.module`
MODELS = frozenset({"GPTModel"})

# class of a layer's self_attention or mlp -> its blocks of the table
BLOCKS: Mapping[str, tuple[Block, ...]] = {
    "SelfAttention": (GROUPED_QUERY_ATTENTION,),
    "MLASelfAttention": (LATENT_ATTENTION,),
    "MLP": (DENSE_MLP,),
    "MoELayer": (ROUTED_EXPERTS, SHARED_EXPERT),
}

# class of a module below it -> the column that it reads in front of "megatron"
COLUMNS: Mapping[str, str] = {
    "TELayerNormColumnParallelLinear": "fused_norm",
    "TELinear": "replicated_down",
    "SequentialMLP": "sequential",
    "TEGroupedMLP": "te",
    "GroupedMLP": "grouped",
    "MindSpeedGmmExperts": "grouped",
    "MindSpeedFbOverlapGmmExperts": "grouped",
    "MindSpeedTpExtendEpGmmExperts": "grouped",
}
EXTENDED = frozenset({"MindSpeedTpExtendEpGmmExperts"})  # tensor-parallel ranks hold experts of their own

# Other classes that hold tensors: the column "megatron" alone describes them.
PLAIN = frozenset(
    {
        "ColumnParallelLinear",
        "RowParallelLinear",
        "TEColumnParallelLinear",
        "TERowParallelLinear",
        "TEColumnParallelGroupedLinear",
        "TERowParallelGroupedLinear",
        "MindSpeedTEColumnParallelGroupedLinear",
        "MindSpeedTERowParallelGroupedLinear",
        "VocabParallelEmbedding",
        "TopKRouter",
        "SharedExpertMLP",
        "RMSNorm",
        "FusedLayerNorm",
        "LayerNorm",
    }
)

# Classes whose layout differs between versions under one name: the caller says which it is. MindSpeed 26.0 and 26.1
# read the bytes of these as (experts, in, out) whatever their shape says; a later version transposes, so that the shape
# is true.
UNDECIDED = frozenset(
    {"MindSpeedTEPerformanceColumnParallelGroupedLinear", "MindSpeedTEPerformanceRowParallelGroupedLinear"}
)

# Buffers that are no weights.
STATISTICS = frozenset({"local_tokens_per_expert", "global_tokens_per_expert", "ga_steps"})

# Settings under which a layer holds something that the tables do not describe; a shape would not always show it.
REFUSED = {
    "moe_latent_size": "experts in a latent space",
}

# quantity -> field of TransformerConfig, as in `families/quantities.py`
FIELDS: Mapping[str, str] = {
    "hidden": "hidden_size",
    "layers": "num_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_query_groups",
    "head": "kv_channels",
    "out_bias": "add_bias_linear = False",
    "mlp_bias": "add_bias_linear = False",
    "only_qkv_bias": "add_qkv_bias = False",
    "qk_norm": "qk_layernorm = False",
    "output_gate": "attention_output_gate = False",
    "q_rank": "q_lora_rank = None",
    "kv_rank": "kv_lora_rank",
    "nope": "qk_head_dim",
    "rope": "qk_pos_emb_head_dim",
    "value": "v_head_dim",
    "width": "ffn_hidden_size",
    "experts": "num_moe_experts",
    "expert_width": "moe_ffn_hidden_size",
    "shared_width": "moe_shared_expert_intermediate_size = 0",
    "shared_gate": "moe_shared_expert_gate = False",
    "expert_bias": "moe_router_enable_expert_bias = False",
    "glu_interleave": "moe_mlp_glu_interleave_size = 0",
    "shared_glu_interleave": "moe_shared_expert_glu_interleave_size = 0",
    "mtp": "mtp_num_layers = 0",
}


def specs(
    model: Any, *, family: Family | None = None, experts: str | None = None
) -> tuple[dict[str, Spec], dict[str, torch.Tensor]]:
    """What one rank of a live Megatron-Core model holds.

    Parameters
    ----------
    model : torch.nn.Module or list of them
        A ``GPTModel``, or the chunks of a virtual pipeline, with or without wrappers (distributed data parallel,
        float16) around it. Names are those of the innermost model; with several chunks they begin with ``model0.``,
        ``model1.``, ….
    family : Family, optional
        The model's family: it knows the vocabulary without its padding, and layers of multi-token prediction that are
        published but not trained. Without it the vocabulary counts as the model holds it, padding and all, and plans
        that meet one of another size are refused.
    experts : str, optional
        How routed experts are stored, for grouped linears whose class does not tell it: MindSpeed's performance mode
        is ``"stacked-transposed"`` in versions 26.0 and 26.1, and ``"stacked"`` in one that transposes in its forward.

    Returns
    -------
    tuple
        ``{name: Spec}`` and ``{name: tensor}``: parameters, and buffers that are weights (``router.expert_bias``).

    Raises
    ------
    LayoutError
        Where a class of modules is not known, a tensor has no row in the tables or a row no tensor, or a tensor's shape
        is not what its Spec says.
    """
    chunks = list(model) if isinstance(model, Sequence) else [model]
    held: dict[str, Spec] = {}
    tensors: dict[str, torch.Tensor] = {}
    for number, chunk in enumerate(chunks):
        prefix = f"model{number}." if len(chunks) > 1 else ""
        inner = unwrapped(chunk)
        found = dict(_tensors(inner))
        wanted = dict(_specs(inner, family, experts))
        _check(found, wanted)
        held |= {prefix + name: wanted[name] for name in found}
        tensors |= {prefix + name: tensor for name, tensor in found.items()}
    return held, tensors


def unwrapped(model: Any) -> Any:
    """The model inside its wrappers."""
    while type(model).__name__ in WRAPPERS:
        model = model.module
    if type(model).__name__ not in MODELS:
        raise LayoutError(f"model class {type(model).__name__!r} is not known: there are {sorted(MODELS | WRAPPERS)}")
    return model


def mesh() -> dict[str, Any]:
    """This rank's coordinates, out of Megatron-Core's parallel state."""
    from megatron.core import parallel_state as state

    return {
        "tp": (state.get_tensor_model_parallel_world_size(), state.get_tensor_model_parallel_rank()),
        "ep": (state.get_expert_model_parallel_world_size(), state.get_expert_model_parallel_rank()),
        "etp": (state.get_expert_tensor_parallel_world_size(), state.get_expert_tensor_parallel_rank()),
    }


def _tensors(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and persistent buffers, in the order of the modules; a class that is not known is named."""
    for path, module in model.named_modules():
        buffers = {k: v for k, v in module._buffers.items() if k not in module._non_persistent_buffers_set}
        own = {k: v for k, v in {**module._parameters, **buffers}.items() if v is not None and k not in STATISTICS}
        kind = type(module).__name__
        if own and kind not in {*PLAIN, *COLUMNS, *UNDECIDED}:
            raise LayoutError(
                f"module {path!r} is a {kind!r} and holds {sorted(own)}: layout_kernels/integrations/megatron.py does "
                f"not know this class{nearest(kind, {*PLAIN, *COLUMNS})}"
            )
        for name, tensor in own.items():
            yield f"{path}.{name}" if path else name, tensor


def _specs(model: Any, family: Family | None, experts: str | None) -> Iterator[tuple[str, Spec]]:
    """The Specs of one chunk, block by block."""
    view = View(("megatron",), _quantities(model, family), mesh())
    drafts = list(model.mtp.layers) if hasattr(model, "mtp") else []
    whole = view.quantities.given(drafts=len(drafts))
    yield from _expand(EMBEDDING, "model", view.of(whole))
    for n, layer in enumerate(model.decoder.layers):
        known = whole.given(n=n, l=layer.layer_number - 1)
        yield from _layer(layer, "layers", view.of(known), experts)
    for n, draft in enumerate(drafts):
        body = next(name for name in ("transformer_layer", "mtp_model_layer") if hasattr(draft, name))
        known = whole.given(n=n, l=whole("layers") + draft.layer_number - 1, mtp_layer=body)
        yield from _expand(MULTI_TOKEN_PREDICTION, "drafts behind", view.of(known))
        yield from _layer(getattr(draft, body), "draft layers behind", view.of(known), experts)


def _layer(layer: Any, where: str, view: View, experts: str | None) -> Iterator[tuple[str, Spec]]:
    """The blocks of one transformer layer, each through the columns that the classes of its modules select."""
    for part in (layer.self_attention, layer.mlp):
        blocks = choose(f"module class of layer {layer.layer_number}:", type(part).__name__, BLOCKS)
        classes = {type(module).__name__ for module in part.modules()}
        selected = View(
            (*_columns(classes, experts, view.quantities), *view.path),
            view.quantities.given(sparse=ROUTED_EXPERTS in blocks),
            _extended(view.mesh) if classes & EXTENDED else view.mesh,
        )
        for block in blocks:
            yield from _expand(block, where, selected)


def _columns(classes: set[str], experts: str | None, quantities: Quantities) -> tuple[str, ...]:
    columns = tuple(sorted({COLUMNS[kind] for kind in classes if kind in COLUMNS}))
    columns = (*_stored(classes, experts), *columns)
    if quantities("glu_interleave"):
        columns = (*(f"{column}_interleaved" for column in columns if (column,) in STORAGES.values()), *columns)
    return ("shared_interleaved", *columns) if quantities("shared_glu_interleave") else columns


def _stored(classes: set[str], experts: str | None) -> tuple[str, ...]:
    """The column of experts whose class does not tell how it stores them."""
    undecided = sorted(classes & UNDECIDED)
    if not undecided:
        return ()
    if experts is None:
        raise LayoutError(
            f"module class {undecided[0]!r} holds one layout in some versions of MindSpeed and another in others: say "
            "experts='stacked-transposed' or experts='stacked'"
        )
    return choose("option experts", experts, STORAGES)


def _extended(held: Mapping[str, Any]) -> dict[str, Any]:
    """MindSpeed's tp-extend-ep: expert ids run over the tensor-parallel ranks within an expert-parallel one."""
    (tp, tp_rank), (ep, ep_rank) = held["tp"], held["ep"]
    return {**held, "ep": (ep * tp, ep_rank * tp + tp_rank), "etp": (1, 0)}


def _expand(block: Block, where: str, view: View) -> Iterator[tuple[str, Spec]]:
    # A live tensor has the dtype that it has: what a checkpoint fixes is not asked here.
    for name, spec in expand(block, str(place(where, view.path)), view):
        yield name, spec.replace(dtype=None)


def _quantities(model: Any, family: Family | None) -> Quantities:
    """The sizes of TransformerConfig under the names of the tables."""
    config = {"model_type": type(model).__name__, **vars(model.config)}
    if not config.get("gated_linear_unit"):
        raise LayoutError("the tables describe gated MLPs: gated_linear_unit of the model's config is not set")
    for setting, what in REFUSED.items():
        if config.get(setting):
            raise LayoutError(f"{setting}={config[setting]!r}: {what} has no row in the tables")
    derived = {k: v for k, v in DERIVED.items() if k not in FIELDS} | {"qkv_bias": "out_bias or only_qkv_bias"}
    known = Quantities(config, FIELDS, derived).given(
        first=model.pre_process,
        last=model.post_process,
        tied=model.share_embeddings_and_output_weights,
        vocab=family.size("vocab") if family else model.vocab_size,
        vocab_unit=model.vocab_size,
        copies=False,
    )
    return known.given(all_layers=family.size("all_layers")) if family else known


def _check(found: Mapping[str, torch.Tensor], wanted: Mapping[str, Spec]) -> None:
    """Every live tensor has its Spec, every Spec its tensor, and the shapes agree."""
    for name, tensor in found.items():
        if name not in wanted:
            raise LayoutError(f"tensor {name!r} has no row in the tables{nearest(name, wanted.keys() - found.keys())}")
        shape = wanted[name].shape()
        if tuple(tensor.shape) != shape:
            raise LayoutError(
                f"tensor {name!r} has shape {tuple(tensor.shape)}, but layout {str(wanted[name].layout)!r} with "
                f"{dict(wanted[name].dims or {})} and mesh {dict(wanted[name].mesh)} says {shape}"
            )
    for name in wanted.keys() - found.keys():
        raise LayoutError(f"tensor {name!r} is in the tables but not in the model{nearest(name, found)}")

# SPDX-License-Identifier: Apache-2.0
"""Reading a config: named quantities, each a field (in any of its spellings) or an expression over others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import LayoutError, nearest
from .expression import evaluate

# quantity -> the config's field; "a | b" are spellings of one field, "= x" is its value where it is missing or null
FIELDS: Mapping[str, str] = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "vocab": "vocab_size",
    "tied": "tie_word_embeddings = False",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head": "head_dim",
    "attention_bias": "attention_bias = False",
    "q_rank": "q_lora_rank",
    "kv_rank": "kv_lora_rank",
    "nope": "qk_nope_head_dim",
    "rope": "qk_rope_head_dim",
    "value": "v_head_dim",
    "index_heads": "index_n_heads",
    "index_head": "index_head_dim",
    "index_kinds": "indexer_types = None",
    "layer_kinds": "layer_types = None",
    "full_every": "full_attention_interval = 4",
    "key_heads": "linear_num_key_heads",
    "value_heads": "linear_num_value_heads",
    "key_head": "linear_key_head_dim",
    "value_head": "linear_value_head_dim",
    "conv_kernel": "linear_conv_kernel_dim | conv_kernel",
    "mamba_heads": "mamba_num_heads",
    "mamba_head": "mamba_head_dim",
    "mamba_groups": "n_groups",
    "state": "ssm_state_size",
    "width": "intermediate_size",
    "mlp_bias": "mlp_bias = False",
    "experts": "num_experts | num_local_experts | n_routed_experts",
    "expert_width": "moe_intermediate_size",
    "shared_experts": "n_shared_experts | num_shared_experts = 0",
    "shared_expert_width": "shared_expert_intermediate_size | moe_shared_expert_intermediate_size = 0",
    "first_sparse": "first_k_dense_replace",
    "mlp_kinds": "mlp_layer_types = None",
    "sparse_step": "decoder_sparse_step = 1",
    "dense_layers": "mlp_only_layers = ()",
    "mtp": "num_nextn_predict_layers | num_mtp_layers | mtp_num_hidden_layers = 0",
}

# quantity -> expression; a family replaces what differs
DERIVED: Mapping[str, str] = {
    "all_layers": "layers + mtp",
    # which rows a layer has
    "attends": "not recurrent",
    "recurrent": "False",
    "indexed": "False",
    "sparse": "False",
    "dense": "not sparse",
    "gated": "True",
    "qkv_bias": "attention_bias",
    "out_bias": "False",
    "qk_norm": "False",
    "full_qk_norm": "False",
    "output_gate": "False",
    "own_value": "False",
    "sinks": "False",
    "by_key_head": "False",
    "conv_bias": "False",
    "published_fused": "False",
    "router_bias": "False",
    "expert_bias": "False",
    "shared_gate": "False",
    "shared_width": "shared_experts * expert_width",
    # which dtypes stay whatever the rest has
    "float32_router": "False",
    "engine_float32_router": "float32_router",
    # words in names
    "trunk": "'model'",
    "embedding": "'embed_tokens'",
    "final_norm": "'norm'",
    "trained_final_norm": "'final_layernorm'",
    "attention": "'attention'",
    "attn": "'self_attn'",
    "input_norm": "'input_layernorm'",
    "sinks_name": "'sinks'",
    "mlp": "'mlp'",
    "mlp_norm": "'post_attention_layernorm'",
    "attention_post_norm": "'post_self_attn_layernorm'",
    "mlp_post_norm": "'post_mlp_layernorm'",
    "trained_attention_post_norm": "attention_post_norm",
    "trained_mlp_post_norm": "mlp_post_norm",
    "moe": "mlp",
    "engine_moe": "mlp",
    "engine_attn": "attn",
    "engine_embedding": "'embed_tokens'",
    "router": "'gate'",
    "correction": "'gate.'",
    "gate_name": "'gate_proj'",
    "up_name": "'up_proj'",
    "down_name": "'down_proj'",
    "shared": "'shared_experts'",
}


class Quantities:
    """The quantities of one model, looked up by name: ``quantities("hidden")``.

    Parameters
    ----------
    config : mapping
        The config's fields.
    fields, derived : mapping
        Which field, or which expression, a quantity is.
    values : mapping, optional
        Quantities that are known already (a layer's number, the ranks of a mesh).
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        fields: Mapping[str, str],
        derived: Mapping[str, str],
        values: Mapping[str, Any] | None = None,
    ) -> None:
        self.config, self.fields, self.derived = config, fields, derived
        self.values = dict(values or {})

    def given(self, **values: Any) -> Quantities:
        """The same quantities with some more that are known."""
        return Quantities(self.config, self.fields, self.derived, {**self.values, **values})

    def __call__(self, name: str) -> Any:
        if name not in self.values:
            if name in self.derived:
                value = evaluate(self.derived[name], self)
            elif name in self.fields:
                value = self._read(name, self.fields[name])
            else:
                known = [*self.fields, *self.derived]
                raise LayoutError(f"the tables name {name!r}, which is no quantity{nearest(name, known)}")
            self.values[name] = value
        return self.values[name]

    def _read(self, name: str, text: str) -> Any:
        spellings, _, default = (part.strip() for part in text.partition(" = "))
        names = [spelling.strip() for spelling in spellings.split("|")]
        found = {field: self.config[field] for field in names if field in self.config}
        if len({repr(value) for value in found.values()}) > 1:
            raise LayoutError(f"the config says {name} twice, and not the same: {found}")
        value = next(iter(found.values()), None)
        if value is not None:
            return value
        if default:
            return evaluate(default, self)
        if found:
            return None
        raise LayoutError(
            f"the config has no {' or '.join(map(repr, names))}, which {self.config.get('model_type')!r} needs for its "
            f"{name!r}{nearest(names[0], self.config)}"
        )


def read_config(config: object) -> dict[str, Any]:
    """The fields of a Hugging Face config: a mapping, an object with ``to_dict()``, ``config.json`` or its folder.

    Raises
    ------
    LayoutError
        Where it is none of these, or the file cannot be read.
    """
    if isinstance(config, Mapping):
        return dict(config)
    if isinstance(config, (str, Path)):
        path = Path(config)
        path = path / "config.json" if path.is_dir() else path
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise LayoutError(f"config {str(path)!r} cannot be read: {error}") from error
    elif hasattr(config, "to_dict"):
        data = config.to_dict()
    else:
        raise LayoutError(f"a config is a mapping, a path or an object with to_dict(), not {type(config).__name__}")
    if not isinstance(data, Mapping):
        raise LayoutError(f"a config holds fields, not {type(data).__name__}")
    return dict(data)

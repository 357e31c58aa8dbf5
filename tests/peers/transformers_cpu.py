# SPDX-License-Identifier: Apache-2.0
"""The judge: real transformers models built from the same config, their live tensors, and their logits.

transformers 5.24 has no multi-token prediction layer for these families. Its block is therefore layer L of a real model
with one layer more, and the tensors around it (`enorm`, `hnorm`, `eh_proj`, `shared_head.norm`) are applied here.
"""

from __future__ import annotations

from typing import Any

import torch
from tiny_models import draft_layers_of


class LiveModel:
    """A transformers model and, where the family has one, the parts of a draft; NaN everywhere until it is written."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.layers = int(config["num_hidden_layers"])
        self.model = _real_model(config, self.layers)
        self.draft = _real_model(config, self.layers + 1).model.layers[self.layers] if draft_layers_of(config) else None
        self.extra = self._extra_tensors() if self.draft is not None else {}
        for tensor in [*self.live_tensors().values(), *self.draft_tensors().values()]:
            tensor.fill_(float("nan"))

    def live_tensors(self) -> dict[str, torch.Tensor]:
        """Tensors of the live model under its own names, sharing its storage."""
        return dict(self.model.state_dict())

    def draft_tensors(self) -> dict[str, torch.Tensor]:
        """Tensors of the draft under the names of published checkpoints: the fused experts as one view an expert."""
        if self.draft is None:
            return {}
        prefix = f"model.layers.{self.layers}."
        found = {prefix + name: tensor for name, tensor in self.extra.items()}
        for name, tensor in self.draft.state_dict().items():
            if name == "mlp.experts.gate_up_proj":
                for expert, both in enumerate(tensor):
                    gate, up = both.chunk(2)
                    found[f"{prefix}mlp.experts.{expert}.gate_proj.weight"] = gate
                    found[f"{prefix}mlp.experts.{expert}.up_proj.weight"] = up
            elif name == "mlp.experts.down_proj":
                found |= {f"{prefix}mlp.experts.{e}.down_proj.weight": down for e, down in enumerate(tensor)}
            else:
                found[prefix + name] = tensor
        return found

    def _extra_tensors(self) -> dict[str, torch.Tensor]:
        """What checkpoints hold around the block of a draft, copies of the embedding and the head included."""
        hidden, vocabulary = self.config["hidden_size"], self.config["vocab_size"]
        shapes = {
            "enorm.weight": (hidden,),
            "hnorm.weight": (hidden,),
            "eh_proj.weight": (hidden, 2 * hidden),
            "shared_head.norm.weight": (hidden,),
            "embed_tokens.weight": (vocabulary, hidden),
            "shared_head.head.weight": (vocabulary, hidden),
        }
        return {name: torch.empty(shape) for name, shape in shapes.items()}

    @torch.no_grad()
    def logits(self, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
        """{"main": [batch, position, vocabulary], "draft": ...} as `megatron_models.logits` gives them."""
        hidden = self.model.model(tokens, use_cache=False).last_hidden_state
        found = {"main": self.model.lm_head(hidden)}
        if self.draft is not None:
            found["draft"] = self._draft_logits(tokens, hidden)
        return found

    def _draft_logits(self, tokens: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        following = torch.roll(tokens, -1, dims=1)
        following[:, -1] = 0
        embedded = torch.nn.functional.embedding(following, self.extra["embed_tokens.weight"])
        both = torch.cat([self._norm(embedded, "enorm.weight"), self._norm(hidden, "hnorm.weight")], dim=-1)
        state = both @ self.extra["eh_proj.weight"].t()
        positions = torch.arange(tokens.shape[1])[None]
        later = torch.full((tokens.shape[1], tokens.shape[1]), float("-inf")).triu(1)[None, None]
        assert self.draft is not None
        state = self.draft(
            state,
            attention_mask=later,
            position_ids=positions,
            position_embeddings=self.model.model.rotary_emb(state, positions),
            use_cache=False,
        )
        return self._norm(state, "shared_head.norm.weight") @ self.extra["shared_head.head.weight"].t()

    def _norm(self, state: torch.Tensor, name: str) -> torch.Tensor:
        return torch.nn.functional.rms_norm(state, state.shape[-1:], self.extra[name], self.config["rms_norm_eps"])


def _real_model(config: dict[str, Any], layers: int) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    fields = {name: value for name, value in config.items() if name != "model_type"}
    fields["num_hidden_layers"] = layers
    real = AutoConfig.for_model(config["model_type"], **fields)
    real._attn_implementation = "eager"
    return AutoModelForCausalLM.from_config(real, dtype=torch.float32).eval()

# SPDX-License-Identifier: Apache-2.0
"""Rows of the model's two ends: embedding, head, multi-token prediction."""

from __future__ import annotations

from ..table import Row, block, row

VOCABULARY = {"h": "hidden", "v": "vocab", "p": "up(vocab, vocab_unit) - vocab"}

EMBEDDING = block(
    "embedding, final norm, head",
    row(
        "embedding.weight",
        megatron="embedding.word_embeddings.weight = [token:v pad:p]/tp h if first or drafts > 0",
        hf="{trunk}.{embedding}.weight = [token:v] h if first",
        transformers="model.{embedding}.weight = [token:v] h if first",
        vllm="model.{engine_embedding}.weight = [token:v pad:p]/tp h if first or tied and last",
    ),
    row(  # a tied head: Megatron-Core's last stage holds a copy, transformers a second name
        "embedding.weight",
        when="tied",
        megatron="output_layer.weight = [token:v pad:p]/tp h if last and not first",
        hf="",
        transformers="lm_head.weight = [token:v] h if last",
        vllm="",
    ),
    row(
        "output.weight",
        when="not tied",
        megatron="output_layer.weight = [token:v pad:p]/tp h if last",
        hf="lm_head.weight = [token:v] h if last",
        vllm="lm_head.weight = [token:v pad:p]/tp h if last",
    ),
    row(
        "final_norm.weight",
        megatron="decoder.{trained_final_norm}.weight = h if last",
        hf="{trunk}.{final_norm}.weight = h if last",
        transformers="model.{final_norm}.weight = h if last",
        vllm="model.{final_norm}.weight = h if last",
    ),
    sizes=VOCABULARY,
)


MULTI_TOKEN_PREDICTION = block(  # published as further layers of the model
    "multi-token prediction",
    row("mtp.embed_norm.weight", megatron="enorm.weight = h", elsewhere="enorm.weight = h"),
    row("mtp.hidden_norm.weight", megatron="hnorm.weight = h", elsewhere="hnorm.weight = h"),
    row(
        "mtp.eh_proj.weight",
        megatron="eh_proj.weight = o/tp [embed:h hidden:h]",
        elsewhere="eh_proj.weight = o [embed:h hidden:h]",
    ),
    row(
        "mtp.final_norm.weight",
        megatron="final_layernorm.weight = h",
        elsewhere="shared_head.norm.weight = h",
    ),
    row(  # copies of the model's own embedding and head
        "embedding.weight",
        when="copies",
        megatron="",
        hf="embed_tokens.weight = [token:v] h",
        vllm="/draft.model.embed_tokens.weight = [token:v pad:p]/tp h if n == 0",
    ),
    row(
        "output.weight",
        when="copies and not tied",
        megatron="",
        hf="shared_head.head.weight = [token:v] h",
        vllm="shared_head.head.weight = [token:v pad:p]/tp h",
        sglang="/draft.lm_head.weight = [token:v pad:p]/tp h if n == 0",
    ),
    row(
        "embedding.weight",
        when="copies and tied",
        megatron="",
        hf="shared_head.head.weight = [token:v] h",
        vllm="shared_head.head.weight = [token:v pad:p]/tp h",
        sglang="/draft.lm_head.weight = [token:v pad:p]/tp h if n == 0",
    ),
    sizes={**VOCABULARY, "o": "hidden"},
)


def _shared_copies() -> tuple[Row, ...]:
    """What engines hold beside a draft whose checkpoint has no copies of the model's embedding and head."""
    return (
        row(
            "embedding.weight",
            when="copies",
            megatron="",
            hf="",
            vllm="/draft.model.embed_tokens.weight = [token:v pad:p]/tp h if n == 0",
        ),
        *(
            row(of, when=when, megatron="", hf="", vllm="/draft.lm_head.weight = [token:v pad:p]/tp h if n == 0")
            for of, when in (("output.weight", "copies and not tied"), ("embedding.weight", "copies and tied"))
        ),
    )


MULTI_TOKEN_PREDICTION_APART = block(  # published beside the model
    "multi-token prediction, published apart",
    row(
        "mtp.embed_norm.weight",
        megatron="enorm.weight = h",
        hf="/mtp.pre_fc_norm_embedding.weight = h",
        vllm="/draft.model.pre_fc_norm_embedding.weight = h",
    ),
    row(
        "mtp.hidden_norm.weight",
        megatron="hnorm.weight = h",
        hf="/mtp.pre_fc_norm_hidden.weight = h",
        vllm="/draft.model.pre_fc_norm_hidden.weight = h",
    ),
    row(
        "mtp.eh_proj.weight",
        megatron="eh_proj.weight = o/tp [embed:h hidden:h]",
        hf="/mtp.fc.weight = o [embed:h hidden:h]",
        vllm="/draft.model.fc.weight = o/tp [embed:h hidden:h]",
    ),
    row(
        "mtp.final_norm.weight",
        megatron="final_layernorm.weight = h",
        hf="/mtp.norm.weight = h",
        vllm="/draft.model.norm.weight = h",
    ),
    *_shared_copies(),
    sizes={**VOCABULARY, "o": "hidden"},
)


MULTI_TOKEN_PREDICTION_SWAPPED = block(  # published with the hidden state in front
    "multi-token prediction, published with swapped halves",
    row("mtp.embed_norm.weight", megatron="enorm.weight = h", elsewhere="token_layernorm.weight = h"),
    row("mtp.hidden_norm.weight", megatron="hnorm.weight = h", elsewhere="hidden_layernorm.weight = h"),
    row(
        "mtp.eh_proj.weight",
        megatron="eh_proj.weight = o/tp [embed:h hidden:h]",
        elsewhere="input_proj.weight = o [hidden:h embed:h]",
    ),
    row("mtp.final_norm.weight", megatron="final_layernorm.weight = h", elsewhere="final_layernorm.weight = h"),
    *_shared_copies(),
    sizes={**VOCABULARY, "o": "hidden"},
)

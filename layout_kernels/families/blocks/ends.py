# SPDX-License-Identifier: Apache-2.0
"""Rows of the model's two ends: embedding, head, multi-token prediction."""

from __future__ import annotations

from ..table import block, row

VOCABULARY = {"h": "hidden", "v": "vocab", "p": "up(vocab, vocab_unit) - vocab"}

EMBEDDING = block(
    "embedding, final norm, head",
    row(
        "embedding.weight",
        megatron="embedding.word_embeddings.weight = [token:v pad:p]/tp h if first or drafts > 0",
        hf="model.embed_tokens.weight = [token:v] h if first",
        vllm="model.embed_tokens.weight = [token:v pad:p]/tp h if first or tied and last",
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
        megatron="decoder.final_layernorm.weight = h if last",
        elsewhere="model.norm.weight = h if last",
    ),
    sizes=VOCABULARY,
)


MULTI_TOKEN_PREDICTION = block(
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
    ),
    row(
        "embedding.weight",
        when="copies and tied",
        megatron="",
        hf="shared_head.head.weight = [token:v] h",
        vllm="shared_head.head.weight = [token:v pad:p]/tp h",
    ),
    sizes={**VOCABULARY, "o": "hidden"},
)

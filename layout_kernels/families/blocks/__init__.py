# SPDX-License-Identifier: Apache-2.0
"""The layouts of all models, as one table: a row a logical tensor, a column a system.

Columns are looked up along a path that `families/systems.py` gives; the first that a row has counts:

====================== ===============================================================================================
column                 what it describes
====================== ===============================================================================================
``megatron``           Megatron-Core 0.16 and MindSpeed, modules of the local spec
``fused_norm``         there, a norm fused into the linear behind it (Transformer Engine)
``replicated_down``    there, MLA down projections that every tensor-parallel rank holds whole (Transformer Engine)
``sequential``         there, routed experts as one module each
``te``                 there, one grouped linear with a tensor an expert (Transformer Engine)
``grouped``            there, the 2-D ``weight1``, ``weight2``; the shape does not describe the bytes (MindSpeed too)
``stacked``            there, one 3-D tensor whose bytes follow its shape
``stacked_transposed`` there, MindSpeed's 3-D tensor (performance mode), whose bytes are those of ``grouped``
``hf``                 published checkpoints, a tensor an expert
``transformers``       live modules of transformers 5
``vllm``               vLLM 0.32 on CUDA, default kernels
``vllm_ascend``        vLLM-Ascend, ND format, where it differs from ``vllm``
``vllm_cpu``           vLLM on a CPU without AMX, where it differs from ``vllm``
``elsewhere``          every system that has no column of its own in the row
====================== ===============================================================================================

One spelling of axes everywhere: ``h`` hidden, ``i`` width of an MLP or expert, ``e`` experts, ``l`` layers, ``v``
vocabulary, ``p`` its padding, ``g`` kv heads, ``r`` query heads a kv head, ``d`` size of a head, ``n`` heads of MLA,
``lq`` and ``c`` its ranks, ``dn``, ``dr``, ``dv`` its head sizes, ``o`` the rows of ``eh_proj``. Tensors whose logical
name begins with ``layers.`` or ``mtp.`` stand at a layer ``l``; layers of multi-token prediction are numbered on behind
the others, as checkpoints do.
"""

from .attention import GROUPED_QUERY_ATTENTION, LATENT_ATTENTION
from .ends import EMBEDDING, MULTI_TOKEN_PREDICTION
from .mlp import DENSE_MLP, ROUTED_EXPERTS, SHARED_EXPERT

__all__ = [
    "DENSE_MLP",
    "EMBEDDING",
    "GROUPED_QUERY_ATTENTION",
    "LATENT_ATTENTION",
    "MULTI_TOKEN_PREDICTION",
    "ROUTED_EXPERTS",
    "SHARED_EXPERT",
]

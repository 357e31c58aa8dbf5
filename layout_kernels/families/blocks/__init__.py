# SPDX-License-Identifier: Apache-2.0
"""The layouts of all models, as one table: a row a logical tensor, a column a system.

Columns are looked up along a path that `families/systems.py` gives; the first that a row has counts:

========================== ===========================================================================================
column                     what it describes
========================== ===========================================================================================
``megatron``               Megatron-Core 0.16 and MindSpeed, modules of the local spec
``fused_norm``             there, a norm fused into the linear behind it (Transformer Engine)
``replicated_down``        there, MLA down projections that every tensor-parallel rank holds whole (Transformer Engine)
``fused_down``             there, both MLA down projections in one tensor, sharded
``fused_replicated_down``  there, both in one tensor, whole on every rank
``mindspeed_down``         there, both in MindSpeed's ``linear_qkv``, whole on every rank
``split_up``               there, MindSpeed's MLA up projections, split into what turns with the position and what not
``rope_first``             there, the indexer's heads as versions after 0.16 split them
``sequential``             there, routed experts as one module each
``te``                     there, one grouped linear with a tensor an expert (Transformer Engine)
``grouped``                there, 2-D ``weight1``, ``weight2``; the shape does not describe the bytes (MindSpeed too)
``stacked``                there, one 3-D tensor whose bytes follow its shape
``stacked_transposed``     there, MindSpeed's 3-D tensor (performance mode), whose bytes are those of ``grouped``
``…_interleaved``          there, gate and up in turn, in blocks of some rows; ``shared_interleaved``: shared experts
``hf``                     published checkpoints
``transformers``           live modules of transformers 5
``vllm``                   vLLM 0.32 on CUDA, Triton kernels
``up_first``               engines whose kernels want up in front of gate (FlashInfer CUTLASS)
``transposed``             engines whose kernels want (in, out) order (vLLM-Ascend, triton_kernels, XPU)
``alternating``            engines whose kernels want gate and up row by row (SGLang's fused SwiGLU)
``blocks``                 FlashInfer TRT-LLM, bfloat16: rows shuffled in groups, columns in blocks of 128 bytes
``fractal``                NPU fractal format of 2 bytes an element, transposed (vLLM-Ascend)
``fractal_rows``           NPU fractal format of 2 bytes an element (SGLang)
``vllm_cpu``               vLLM on a CPU without AMX
``sglang``                 SGLang 0.5, where it differs from ``vllm``
``elsewhere``              every system that has no column of its own in the row
========================== ===========================================================================================

One spelling of axes everywhere: ``h`` hidden, ``i`` width of an MLP or expert, ``e`` experts, ``l`` layers, ``v``
vocabulary, ``p`` its padding, ``g`` kv heads, ``r`` query heads a kv head, ``d`` size of a head (``dv`` of its values,
where it differs), ``n`` heads of MLA, ``lq`` and ``c`` its ranks, ``dn``, ``dr``, ``dv`` its head sizes, ``ni`` heads
of an indexer, ``nk`` key heads of a delta net, ``nv`` its value heads, ``nr`` of them a key head, ``nh`` heads of
Mamba, ``hd`` their size, ``ng`` its groups, ``s`` its state, ``kw`` the width of a convolution, ``o`` the rows of
``eh_proj``. Tensors whose logical name begins with ``layers.`` or ``mtp.`` stand at a layer ``l``; layers of
multi-token prediction are numbered on behind the others, as checkpoints do.
"""

from .attention import GROUPED_QUERY_ATTENTION, POST_NORMS
from .ends import (
    EMBEDDING,
    MULTI_TOKEN_PREDICTION,
    MULTI_TOKEN_PREDICTION_APART,
    MULTI_TOKEN_PREDICTION_SWAPPED,
)
from .experts import ALTERNATING_EXPERTS, ROUTED_EXPERTS, TRANSPOSED_EXPERTS, UNGATED_EXPERTS
from .latent import INDEXER, LATENT_ATTENTION
from .mlp import DENSE_MLP, SHARED_EXPERT
from .recurrent import GATED_DELTA_NET, MAMBA

__all__ = [
    "ALTERNATING_EXPERTS",
    "DENSE_MLP",
    "EMBEDDING",
    "GATED_DELTA_NET",
    "GROUPED_QUERY_ATTENTION",
    "INDEXER",
    "LATENT_ATTENTION",
    "MAMBA",
    "MULTI_TOKEN_PREDICTION",
    "MULTI_TOKEN_PREDICTION_APART",
    "MULTI_TOKEN_PREDICTION_SWAPPED",
    "POST_NORMS",
    "ROUTED_EXPERTS",
    "SHARED_EXPERT",
    "TRANSPOSED_EXPERTS",
    "UNGATED_EXPERTS",
]

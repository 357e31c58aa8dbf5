# SPDX-License-Identifier: Apache-2.0
"""What Megatron-Core 0.16.1 needs to train on a CPU, without apex or TransformerEngine.

`install()` changes the running process and must come before anything else imports `megatron`. Each function below is
one change with its reason. Nothing here touches a weight or the way in which one is stored.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformer_engine_stand_in


def prepare(*, transformer_engine: bool = False) -> None:
    """What must stand before the first import of `megatron`; changes no module of torch or transformers."""
    os.environ["TORCHDYNAMO_DISABLE"] = "1"  # Megatron compiles its activation functions: 20 seconds a process
    _provide_grouped_matmul()
    if transformer_engine:
        transformer_engine_stand_in.install()


def install(*, transformer_engine: bool = False) -> None:
    """Make this process able to run Megatron-Core on a CPU; `transformer_engine` adds the stand-in for its layers."""
    prepare(transformer_engine=transformer_engine)
    _name_the_cpu_as_the_current_device()
    _replace_random_state_tracker()
    _route_without_transformer_engine()
    _give_latent_attention_its_value_width(transformer_engine)
    _mark_norms_under_sequence_parallelism()


def _name_the_cpu_as_the_current_device() -> None:
    """Rotary tables, router buffers and gather buffers are made on `torch.cuda.current_device()`."""
    torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment, return-value]


def _grouped_matmul(
    tokens: torch.Tensor, weights: torch.Tensor, tokens_per_expert: torch.Tensor, trans_b: bool = False
) -> torch.Tensor:
    """Rows of expert `e`, which lie together, times `weights[e]`."""
    rows = torch.split(tokens, [int(count) for count in tokens_per_expert])
    matrices = [matrix.t() if trans_b else matrix for matrix in weights]
    return torch.cat([part @ matrix for part, matrix in zip(rows, matrices, strict=True)])


def _provide_grouped_matmul() -> None:
    """GroupedMLP asserts that the package `grouped_gemm` (CUDA only) is there; all it uses is one loop of matmuls."""
    if "grouped_gemm" in sys.modules:
        return
    module = types.ModuleType("grouped_gemm")
    module.ops = types.SimpleNamespace(gmm=_grouped_matmul)  # type: ignore[attr-defined]
    sys.modules["grouped_gemm"] = module


class _NoRandomStates:
    """A random state tracker that tracks nothing: the models here have no dropout."""

    def is_initialized(self) -> bool:
        return True

    def add(self, name: str, seed: int) -> None: ...

    def reset(self) -> None: ...

    @contextmanager
    def fork(self, name: str = "") -> Iterator[None]:
        yield


def _replace_random_state_tracker() -> None:
    """The usual tracker saves and restores the state of a CUDA generator."""
    from megatron.core.tensor_parallel import random

    random._CUDA_RNG_STATE_TRACKER = _NoRandomStates()
    random._CUDA_RNG_STATE_TRACKER_INITIALIZED = True


def _route_without_transformer_engine() -> None:
    """0.16.1 asks `te_general_gemm is not None` without having defined the name where TransformerEngine is absent."""
    from megatron.core.transformer.moe import moe_utils

    moe_utils.te_general_gemm = None


def _give_latent_attention_its_value_width(transformer_engine: bool) -> None:
    """The local attention takes no key and value widths, and assumes that a head's output is `kv_channels` wide."""
    from megatron.core.transformer import multi_latent_attention
    from megatron.core.transformer.dot_product_attention import DotProductAttention

    plain_init = DotProductAttention.__init__

    def init(
        self: Any, *args: Any, k_channels: int | None = None, v_channels: int | None = None, **fields: Any
    ) -> None:
        plain_init(self, *args, **fields)
        if v_channels is not None:
            self.hidden_size_per_partition = v_channels * self.num_attention_heads_per_partition

    DotProductAttention.__init__ = init
    # Without TransformerEngine its class names are mocks, on which isinstance raises.
    multi_latent_attention.HAVE_TE = transformer_engine


def _mark_norms_under_sequence_parallelism() -> None:
    """The torch norm refuses sequence parallelism, which only demands the mark that asks for a gradient all-reduce."""
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    def new(cls: type, config: Any, hidden_size: int, eps: float = 1e-5, **_unused: Any) -> torch.nn.Module:
        if config.normalization != "RMSNorm":
            raise NotImplementedError(f"only RMSNorm is provided here, the config asks for {config.normalization}")
        norm = torch.nn.RMSNorm(normalized_shape=hidden_size, eps=eps)
        norm.weight.sequence_parallel = config.sequence_parallel  # type: ignore[assignment]
        return norm

    WrappedTorchNorm.__new__ = new

# SPDX-License-Identifier: Apache-2.0
"""A stand-in, in plain torch, for the few TransformerEngine layers under Megatron-Core's wrappers.

With it Megatron's layer specs of that kind build on a CPU. What it settles: the shapes and shards that Megatron's own
wrapper classes (TELinear, TELayerNormColumnParallelLinear, TEGroupedLinear, ...) give to `weight`, `layer_norm_weight`
and `weight{i}`. What it cannot settle: these names themselves, which are TransformerEngine's, and anything that its
kernels do. It says version 1.12, the newest that needs none of the operation-based API.
"""

from __future__ import annotations

import sys
import types
from contextlib import contextmanager
from typing import Any

import torch

VERSION = "1.12.0"


class Linear(torch.nn.Module):
    """Rows of `weight` are outputs; column-parallel keeps some of the rows, row-parallel some of the columns."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        parallel_mode: str | None = None,
        tp_size: int = 1,
        sequence_parallel: bool = False,
        bias: bool = True,
        return_bias: bool = False,
        tp_group: Any = None,
        **_ignored: Any,
    ) -> None:
        super().__init__()
        self.parallel_mode, self.sequence_parallel = parallel_mode, sequence_parallel and tp_size > 1
        self.return_bias, self.use_bias, self.tp_size = return_bias, bias, tp_size
        self.in_features = in_features // (tp_size if parallel_mode == "row" else 1)
        self.out_features = out_features // (tp_size if parallel_mode == "column" else 1)
        self.weight = torch.nn.Parameter(torch.empty(self.out_features, self.in_features))
        self.weight.tensor_model_parallel = parallel_mode is not None
        self.bias = torch.nn.Parameter(torch.zeros(self.out_features)) if bias else None
        if self.bias is not None:
            self.bias.tensor_model_parallel = parallel_mode == "column"

    def forward(self, x: torch.Tensor, is_first_microbatch: Any = None) -> Any:
        from megatron.core.tensor_parallel import mappings

        if self.parallel_mode == "column":
            gather = mappings.gather_from_sequence_parallel_region
            x = gather(x) if self.sequence_parallel else mappings.copy_to_tensor_model_parallel_region(x)
        out = x @ self.weight.t()
        if self.parallel_mode == "row":
            scatter = mappings.reduce_scatter_to_sequence_parallel_region
            out = scatter(out) if self.sequence_parallel else mappings.reduce_from_tensor_model_parallel_region(out)
        if self.return_bias:
            return out, self.bias
        return out if self.bias is None else out + self.bias


class RMSNorm(torch.nn.Module):
    def __init__(self, hidden_size: int, eps: float = 1e-5, sequence_parallel: bool = False, **_ignored: Any) -> None:
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.ones(hidden_size))
        self.weight.sequence_parallel = sequence_parallel

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.rms_norm(x, x.shape[-1:], self.weight, self.eps)


class LayerNormLinear(Linear):
    """A norm and the column-parallel linear layer that follows it, in one module."""

    def __init__(
        self, in_features: int, out_features: int, *, eps: float = 1e-5, normalization: str = "RMSNorm", **fields: Any
    ) -> None:
        if normalization != "RMSNorm":
            raise NotImplementedError(f"the stand-in has RMSNorm alone, not {normalization}")
        super().__init__(in_features, out_features, **fields)
        self.eps = eps
        self.layer_norm_weight = torch.nn.Parameter(torch.ones(in_features))
        self.layer_norm_weight.sequence_parallel = self.sequence_parallel

    def forward(self, x: torch.Tensor, is_first_microbatch: Any = None) -> Any:
        return super().forward(torch.nn.functional.rms_norm(x, x.shape[-1:], self.layer_norm_weight, self.eps))


class GroupedLinear(torch.nn.Module):
    """`weight0` ... of one shape, each an allocation of its own; the rows of expert i times weight i."""

    def __init__(
        self,
        num_gemms: int,
        in_features: int,
        out_features: int,
        *,
        parallel_mode: str | None,
        tp_size: int,
        **_ignored: Any,
    ) -> None:
        super().__init__()
        self.num_gemms = num_gemms
        rows = out_features // (tp_size if parallel_mode == "column" else 1)
        columns = in_features // (tp_size if parallel_mode == "row" else 1)
        for expert in range(num_gemms):
            self.register_parameter(f"weight{expert}", torch.nn.Parameter(torch.empty(rows, columns)))

    def forward(self, x: torch.Tensor, m_splits: list[int], is_first_microbatch: Any = None) -> torch.Tensor:
        parts = torch.split(x, m_splits)
        return torch.cat([part @ getattr(self, f"weight{expert}").t() for expert, part in enumerate(parts)])


class DotProductAttention(torch.nn.Module):
    """Causal attention over [position, batch, head, channel]."""

    def __init__(
        self, num_attention_heads: int, kv_channels: Any, *, softmax_scale: float | None = None, **_ignored: Any
    ) -> None:
        super().__init__()
        self.softmax_scale = softmax_scale

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_mask: Any, **_options: Any
    ) -> torch.Tensor:
        repeats = query.shape[2] // key.shape[2]
        q, k, v = query, key.repeat_interleave(repeats, 2), value.repeat_interleave(repeats, 2)
        scale = self.softmax_scale or query.shape[-1] ** -0.5
        scores = torch.einsum("qbnd,kbnd->bnqk", q, k) * scale
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        weights = scores.masked_fill(later, float("-inf")).softmax(-1)
        return torch.einsum("bnqk,kbnd->qbnd", weights, v).flatten(2)


class _Unused:
    """Stands for classes and functions that Megatron imports, or derives from, and that no model here uses."""


_DISTRIBUTED = ("CudaRNGStatesTracker", "activation_recompute_forward", "is_fp8_activation_recompute_enabled")


@contextmanager
def _no_autocast(*_args: Any, **_fields: Any) -> Any:
    yield


def install() -> None:
    """Put the stand-in where `import transformer_engine` finds it; before megatron is imported."""
    if getattr(sys.modules.get("transformer_engine"), "__version__", None) == VERSION:
        return
    if any(name.split(".")[0] == "megatron" for name in sys.modules):
        raise RuntimeError("the stand-in for TransformerEngine must be installed before megatron is imported")
    contents: dict[str, dict[str, Any]] = {
        "transformer_engine": {"__version__": VERSION},
        "transformer_engine.common": {},
        "transformer_engine.common.recipe": {"DelayedScaling": _Unused},
        "transformer_engine.pytorch": {
            "Linear": Linear,
            "LayerNormLinear": LayerNormLinear,
            "GroupedLinear": GroupedLinear,
            "RMSNorm": RMSNorm,
            "LayerNorm": _Unused,
            "DotProductAttention": DotProductAttention,
        },
        "transformer_engine.pytorch.distributed": {name: _Unused for name in _DISTRIBUTED},
        "transformer_engine.pytorch.cpp_extensions": {"cast_to_fp8": _Unused},
        "transformer_engine.pytorch.float8_tensor": {"Float8Tensor": _Unused},
        "transformer_engine.pytorch.fp8": {"FP8GlobalStateManager": _Unused, "fp8_autocast": _no_autocast},
    }
    for name, fields in contents.items():
        module = types.ModuleType(name)
        module.__dict__.update(fields)
        module.__path__ = []  # type: ignore[attr-defined]
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)

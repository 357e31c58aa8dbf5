# SPDX-License-Identifier: Apache-2.0
"""Live vLLM models on a CPU: what each tensor of the target and of its draft holds, in the layout that runs.

The layouts are those of the system ``"vllm-cpu"`` in the tables. Which of them a live engine has depends on the kernels
that it chose when it loaded; these are read from its modules, never from a shape, and anything that is not in the lists
below is refused by name. Written against vLLM 0.32.0.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ..errors import LayoutError, nearest
from ..families.family import DRAFT, Family
from ..spec import Spec

# (class, instruction set) of the kernel of routed experts -> the system whose columns describe its bytes
EXPERT_KERNELS: Mapping[tuple[str, str], str] = {("CPUUnquantizedExperts", "vec"): "vllm-cpu"}
LINEAR_METHODS = frozenset({"UnquantizedLinearMethod", "UnquantizedEmbeddingMethod"})
EXPERT_METHODS = frozenset({"UnquantizedFusedMoEMethod"})
# Classes without a kernel to choose: their tensors are what their names say.
PLAIN = frozenset({"RMSNorm", "Linear", "MLAAttention"})

HOW = "call layout_kernels.integrations.vllm.use_plain_linears() before the engine starts"


def use_plain_linears() -> None:
    """Make every engine that this process starts from now on keep its linear weights where they can be written.

    By default vLLM on a CPU packs them into private memory and leaves tensors of shape ``(0,)`` or, for the output
    head, one that is no longer read. Afterwards they are multiplied by ``torch.nn.functional.linear``. In engines with
    worker processes, call it in each worker (``worker_extension_cls``).
    """
    utils: Any = importlib.import_module("vllm.model_executor.layers.utils")
    utils.dispatch_cpu_unquantized_gemm = _keep_plain


def _keep_plain(layer: torch.nn.Module, remove_weight: bool) -> None:
    """In place of vLLM's function of the same arguments."""
    del remove_weight
    layer.cpu_linear = torch.nn.functional.linear  # type: ignore[assignment]


def runner(llm: Any) -> Any:
    """The model runner of an engine that lives in this process (a worker has it as ``self.model_runner``).

    Raises
    ------
    LayoutError
        Where the engine sleeps: its weights may be gone, and would be loaded again over anything written.
        Where it lives in another process (``VLLM_ENABLE_V1_MULTIPROCESSING=0`` starts it in this one).
    """
    if llm.llm_engine.is_sleeping():
        raise LayoutError("the engine sleeps: wake it up before its weights are read or written")
    executor = getattr(llm.llm_engine, "model_executor", None)
    if executor is None or not hasattr(executor, "driver_worker"):
        raise LayoutError(
            "the engine's model is not in this process: set VLLM_ENABLE_V1_MULTIPROCESSING=0, or read it in each "
            "worker (worker_extension_cls, self.model_runner)"
        )
    worker = executor.driver_worker
    return getattr(worker, "worker", worker).model_runner


def specs(model_runner: Any, *, family: Family, draft: bool = True) -> tuple[dict[str, Spec], dict[str, torch.Tensor]]:
    """What the live engine holds: its target's parameters, and those of its draft under ``draft.``.

    Parameters
    ----------
    model_runner
        Of a worker, or from `runner`. Its models are read now; an engine that is put to sleep or reloaded later must be
        read anew.
    family : Family
        The model's family, as the engine has it.
    draft : bool
        False leaves the draft out: it then keeps the weights that it has, whatever the target becomes. An engine
        without a draft model has none to leave out.

    Returns
    -------
    tuple
        ``{name: Spec}`` and ``{name: tensor}``. The draft's embedding and head are the target's own tensors under a
        second name; a sync writes them once.

    Raises
    ------
    LayoutError
        Where a module runs a kernel that packs its weights, or one that is not known; where a class of modules, a
        tensor or its shape or dtype is not what the tables say.
    """
    held: dict[str, Spec] = {}
    tensors: dict[str, torch.Tensor] = {}
    for part, prefix, model in _models(model_runner, draft):
        described = family.specs(_system(prefix, model), part=part, mesh=_mesh())
        found = {prefix + name: tensor.data for name, tensor in model.named_parameters()}
        wanted = {prefix + name: spec for name, spec in described.items()}
        _check(found, wanted)
        held |= wanted
        tensors |= {name: found[name] for name in wanted}
    return held, tensors


def _models(model_runner: Any, draft: bool) -> Iterator[tuple[str, str, torch.nn.Module]]:
    """The parts of the tables, the beginnings of their names, and the live models."""
    yield "target", "", model_runner.get_model()
    drafting = model_runner.get_draft_model()
    if draft and drafting is not None:
        yield "draft", DRAFT, drafting


def _mesh() -> dict[str, Any]:
    """This worker's place. Expert parallelism is not there: the kernels of vLLM 0.32.0 on a CPU do not take it."""
    state = importlib.import_module("vllm.distributed")
    size, rank = state.get_tensor_model_parallel_world_size(), state.get_tensor_model_parallel_rank()
    return {"tp": (size, rank)}


def _system(prefix: str, model: torch.nn.Module) -> str:
    """The system that describes a model: every module is looked at, and the kernels of its experts decide."""
    _refuse_emptied(prefix, model)
    chosen = {system for path, module in _holders(model) for system in [_column(prefix + path, module)] if system}
    if len(chosen) > 1:
        raise LayoutError(f"the experts of one model run kernels of different layouts: {sorted(chosen)}")
    return chosen.pop() if chosen else "vllm-cpu"


def _holders(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Modules that hold tensors of their own."""
    for path, module in model.named_modules():
        if any(tensor is not None for tensor in module._parameters.values()):
            yield path, module


def _column(path: str, module: torch.nn.Module) -> str | None:
    """The system that a kernel of experts reads, None for any other module; refuses what is packed or not known."""
    kind, method = type(module).__name__, getattr(module, "quant_method", None)
    if method is None:
        if kind not in PLAIN:
            raise LayoutError(f"module {path!r} is a {kind!r}: layout_kernels/integrations/vllm.py does not know it")
        return None
    name = type(method).__name__
    if name in EXPERT_METHODS:
        return _expert_kernel(path, module, method)
    if name not in LINEAR_METHODS:
        known = LINEAR_METHODS | EXPERT_METHODS
        raise LayoutError(f"module {path!r} is stored by {name!r}; there are {sorted(known)}{nearest(name, known)}")
    _refuse_packed(path, module)
    return None


def _refuse_emptied(prefix: str, model: torch.nn.Module) -> None:
    """Tensors that a kernel has taken away, all counted and one named; and tensors that are not on a CPU."""
    named = {prefix + name: tensor for name, tensor in model.named_parameters()}
    emptied = [name for name, tensor in named.items() if tensor.shape == (0,)]
    if emptied:
        raise LayoutError(
            f"tensor {emptied[0]!r} and {len(emptied) - 1} others have shape (0,): vLLM packed them into private "
            f"memory that cannot be written; {HOW}"
        )
    for name, tensor in named.items():
        if tensor.device.type != "cpu":
            raise LayoutError(f"tensor {name!r} is on {tensor.device}: this reads engines that run on a CPU")


def _refuse_packed(path: str, module: torch.nn.Module) -> None:
    """The kernel of a linear must be the plain one: a packed one ignores its tensor, whatever shape that has."""
    kernel = getattr(module, "cpu_linear", None)
    if kernel is not torch.nn.functional.linear:
        name = getattr(kernel, "__qualname__", repr(kernel))
        raise LayoutError(
            f"tensor '{path}.weight' is read by the kernel {name!r}, not by torch.nn.functional.linear, and may be "
            f"packed elsewhere; {HOW}"
        )


def _expert_kernel(path: str, module: torch.nn.Module, method: Any) -> str:
    kernel = getattr(getattr(method, "moe_kernel", None), "fused_experts", None)
    chosen = (type(kernel).__name__, str(getattr(kernel, "isa", None)))
    if getattr(kernel, "_use_zentorch", False):
        raise LayoutError(f"module {path!r} runs the experts of zentorch, whose packing has no row in the tables")
    if chosen not in EXPERT_KERNELS:
        known = sorted(" ".join(entry) for entry in EXPERT_KERNELS)
        raise LayoutError(
            f"module {path!r} runs the kernel {' '.join(chosen)!r}, which packs experts in its own way; the tables "
            f"know {known}{nearest(' '.join(chosen), known)}"
        )
    local, whole = module.local_num_experts, module.global_num_experts
    if local != whole:
        raise LayoutError(f"module {path!r} holds {local} of {whole} experts: expert parallelism on a CPU is not known")
    return EXPERT_KERNELS[chosen]


def _check(found: Mapping[str, torch.Tensor], wanted: Mapping[str, Spec]) -> None:
    """Every live tensor has its Spec, every Spec its tensor, and shapes and dtypes agree."""
    for name, tensor in found.items():
        if name not in wanted:
            raise LayoutError(f"tensor {name!r} has no row in the tables{nearest(name, wanted.keys() - found.keys())}")
        spec = wanted[name]
        if tuple(tensor.shape) != spec.shape():
            raise LayoutError(
                f"tensor {name!r} has shape {tuple(tensor.shape)}, but layout {str(spec.layout)!r} with "
                f"{dict(spec.dims or {})} and mesh {dict(spec.mesh)} says {spec.shape()}"
            )
        if spec.dtype is not None and tensor.dtype != spec.dtype:
            raise LayoutError(f"tensor {name!r} is {tensor.dtype}, the tables say {spec.dtype}")
    for name in wanted.keys() - found.keys():
        raise LayoutError(f"tensor {name!r} is in the tables but not in the engine{nearest(name, found)}")

# SPDX-License-Identifier: Apache-2.0
"""Real Megatron-Core models from a Hugging Face config: building them, and their logits.

Call `megatron_cpu.install()` and `start()` first. All of it runs in a gloo world of its own, one process a rank.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from tiny_models import draft_layers_of, experts_of, padded_vocabulary_of, sparse_layers_of


@dataclass(frozen=True)
class Topology:
    """Sizes of the mesh of the trainer; `expert_tensor` is the tensor parallelism inside an expert."""

    world: int = 1
    tensor: int = 1
    expert: int = 1
    expert_tensor: int = 1
    sequence_parallel: bool = False


TOPOLOGIES = {
    "alone": Topology(),
    "tp2": Topology(2, tensor=2, expert_tensor=2),
    "tp2-sp": Topology(2, tensor=2, expert_tensor=2, sequence_parallel=True),
    "ep2": Topology(2, expert=2),
    "tp2-ep2-sp": Topology(2, tensor=2, expert=2, sequence_parallel=True),
}


def start(topology: Topology, rank: int, store: str) -> None:
    """Join the trainers' own gloo world; `store` is an init_method such as `file:///tmp/x`."""
    from megatron.core import parallel_state

    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=topology.world)
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=topology.tensor,
        expert_model_parallel_size=topology.expert,
        expert_tensor_parallel_size=topology.expert_tensor,
    )


def build(
    config: dict[str, Any], topology: Topology, *, experts: str = "sequential", spec: str = "local", seed: int = 0
) -> torch.nn.Module:
    """A GPTModel of `config`, fp32, with weights of a size that lets every part matter.

    Parameters
    ----------
    experts : "sequential", "grouped" (the legacy GroupedMLP) or "te" (one weight an expert, grouped; needs spec "te")
    spec : "local" or "te", the layer classes of the model
    """
    from megatron.core.models.gpt import gpt_layer_specs
    from megatron.core.models.gpt.gpt_model import GPTModel

    settings = _settings(config, topology, experts)
    te = spec == "te"
    block = gpt_layer_specs.get_gpt_decoder_block_spec(settings, use_transformer_engine=te, normalization="RMSNorm")
    draft = None
    if draft_layers_of(config):
        draft = gpt_layer_specs.get_gpt_mtp_block_spec(settings, block, use_transformer_engine=te)
    rope = config["rope_parameters"]
    model = GPTModel(
        settings,
        block,
        vocab_size=padded_vocabulary_of(config, topology.tensor),
        max_sequence_length=config["max_position_embeddings"],
        position_embedding_type="rope",
        rotary_percent=rope.get("partial_rotary_factor", 1.0),
        rotary_base=int(rope["rope_theta"]),
        share_embeddings_and_output_weights=config["tie_word_embeddings"],
        mtp_block_spec=draft,
        parallel_output=True,
    )
    if experts == "grouped":
        settings.bf16 = True  # GroupedMLP asserts it in forward; the parameters stay fp32
    scatter_weights(model, seed)
    return model


def _settings(config: dict[str, Any], topology: Topology, experts: str) -> Any:
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

    fields = {**_attention(config), **_dense(config, topology)}
    if experts_of(config):
        fields |= _experts(config, experts)
    return (MLATransformerConfig if "kv_lora_rank" in config else TransformerConfig)(**fields)


def _dense(config: dict[str, Any], topology: Topology) -> dict[str, Any]:
    return {
        "num_layers": config["num_hidden_layers"],
        "mtp_num_layers": draft_layers_of(config) or None,
        "hidden_size": config["hidden_size"],
        "ffn_hidden_size": config["intermediate_size"],
        "num_attention_heads": config["num_attention_heads"],
        "tensor_model_parallel_size": topology.tensor,
        "expert_model_parallel_size": topology.expert,
        "expert_tensor_parallel_size": topology.expert_tensor,
        "sequence_parallel": topology.sequence_parallel,
        "normalization": "RMSNorm",
        "layernorm_epsilon": config["rms_norm_eps"],
        "gated_linear_unit": True,
        "activation_func": torch.nn.functional.silu,
        "add_bias_linear": False,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "use_cpu_initialization": True,
        "bias_activation_fusion": False,
        "masked_softmax_fusion": False,
        "bias_dropout_fusion": False,
        "apply_rope_fusion": False,
        "gradient_accumulation_fusion": False,
        "attention_softmax_in_fp32": True,
    }


def _attention(config: dict[str, Any]) -> dict[str, Any]:
    if "kv_lora_rank" not in config:
        return {
            "num_query_groups": config["num_key_value_heads"],
            "kv_channels": config["head_dim"],
            "qk_layernorm": config["model_type"].startswith("qwen3") or config.get("use_qk_norm", False),
            "add_qkv_bias": config["model_type"].startswith("qwen2") or config["attention_bias"],
        }
    return {
        "multi_latent_attention": True,
        "q_lora_rank": config["q_lora_rank"],
        "kv_lora_rank": config["kv_lora_rank"],
        "qk_head_dim": config["qk_nope_head_dim"],
        "qk_pos_emb_head_dim": config["qk_rope_head_dim"],
        "v_head_dim": config["v_head_dim"],
        "qk_layernorm": True,
        "rope_type": "rope",
        "rotary_base": config["rope_parameters"]["rope_theta"],
        "rotary_scaling_factor": 1.0,  # otherwise the softmax is scaled for YaRN
    }


def _experts(config: dict[str, Any], experts: str) -> dict[str, Any]:
    sigmoid = "n_routed_experts" in config
    fields: dict[str, Any] = {
        "num_moe_experts": experts_of(config),
        "moe_router_topk": config["num_experts_per_tok"],
        "moe_ffn_hidden_size": config["moe_intermediate_size"],
        "moe_layer_freq": sparse_layers_of(config),
        "moe_router_dtype": "fp32",
        "moe_router_load_balancing_type": "none",
        "moe_aux_loss_coeff": 0.0,
        "moe_token_dispatcher_type": "allgather",
        "moe_grouped_gemm": experts != "sequential",
        "moe_use_legacy_grouped_gemm": experts == "grouped",
    }
    if "shared_expert_intermediate_size" in config:
        fields |= {
            "moe_shared_expert_intermediate_size": config["shared_expert_intermediate_size"],
            "moe_shared_expert_gate": True,
        }
    if sigmoid:
        fields |= {
            "moe_router_score_function": "sigmoid",
            "moe_router_enable_expert_bias": True,
            "moe_router_topk_scaling_factor": config["routed_scaling_factor"],
            "moe_shared_expert_intermediate_size": config["moe_intermediate_size"] * config["n_shared_experts"],
        }
    return fields


def scatter_weights(model: torch.nn.Module, seed: int) -> None:
    """Random weights, equal on all ranks that hold the same piece and different everywhere else.

    Megatron's own initialisation draws in another order on each expert rank, which makes replicas differ, and is so
    small (0.02) that exchanging two heads would hardly show.
    """
    rank, tensor_rank = dist.get_rank(), _tensor_rank()
    with torch.no_grad():
        for name, weight in [*model.named_parameters(), *model.named_buffers()]:
            if not weight.is_floating_point() or name.endswith(("local_tokens_per_expert", "inv_freq")):
                continue
            split = getattr(weight, "tensor_model_parallel", False)
            holder = rank if is_expert(name) else tensor_rank if split else 0
            noise = torch.Generator().manual_seed(zlib.crc32(f"{seed} {holder} {name}".encode()))
            weight.copy_(_drawn(name, weight, noise))


def _drawn(name: str, weight: torch.Tensor, noise: torch.Generator) -> torch.Tensor:
    drawn = torch.randn(weight.shape, generator=noise)
    if name.endswith("expert_bias"):
        return 0.3 * drawn
    if weight.dim() == 1:
        return 0.1 * drawn if name.endswith("bias") else 1 + 0.3 * drawn
    if "embedding" in name or "router" in name:
        return drawn * (0.4 if "embedding" in name else 0.25)
    inputs = weight.shape[0] if name.endswith("weight1") else weight.shape[-1]
    return drawn * (2.0 if name.endswith("weight1") or "fc1" in name else 1.2) / inputs**0.5


def is_expert(name: str) -> bool:
    """Whether a parameter belongs to one routed expert, and so to the expert ranks alone."""
    return ".experts." in name


def _tensor_rank() -> int:
    from megatron.core import parallel_state

    return int(parallel_state.get_tensor_model_parallel_rank())


def forward(model: torch.nn.Module, tokens: torch.Tensor, labels: torch.Tensor, **options: Any) -> torch.Tensor:
    """Losses of each token under causal attention."""
    length = tokens.shape[1]
    positions = torch.arange(length).expand_as(tokens)
    masked = torch.ones(length, length, dtype=torch.bool).triu(1)[None, None]  # True means masked
    result: torch.Tensor = model(tokens, positions, masked, labels=labels, **options)
    return result


@torch.no_grad()
def logits(model: torch.nn.Module, tokens: torch.Tensor, vocabulary: int | None = None) -> dict[str, torch.Tensor]:
    """{"main": [batch, position, vocabulary without its padding], "draft": the same of multi-token prediction}.

    Without such a layer there is no "draft". Its logits at position p come from the hidden state at p and the token at
    p + 1 (token 0 at the end).
    """
    seen: list[torch.Tensor] = []
    # A clone, since the cross entropy that follows works in place.
    hook = model.output_layer.register_forward_hook(lambda _m, _i, out: seen.append(out[0].clone()))  # type: ignore[union-attr, operator]
    model.eval()
    try:
        forward(model, tokens, torch.zeros_like(tokens), runtime_gather_output=True)
    finally:
        hook.remove()
    names = ["draft", "main"][-len(seen) :]
    return {name: part[..., :vocabulary].transpose(0, 1).contiguous() for name, part in zip(names, seen, strict=True)}


@torch.no_grad()
def routing_margin(model: torch.nn.Module, tokens: torch.Tensor) -> float:
    """Smallest distance between the last expert chosen and the first one left out, over the tokens of this rank.

    Where it is no larger than the rounding of the two peers, they may choose differently, and no comparison means
    anything.
    """
    margins = [float("inf")]

    def measure(router: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        scores = router.gating(inputs[0]).flatten(0, 1)
        if router.score_function == "sigmoid":
            scores = scores.sigmoid() + router.expert_bias
        best = scores.topk(router.topk + 1, dim=-1).values
        margins.append((best[:, -2] - best[:, -1]).min().item())

    hooks = [m.register_forward_pre_hook(measure) for m in model.modules() if type(m).__name__ == "TopKRouter"]
    logits(model, tokens)
    for hook in hooks:
        hook.remove()
    return min(margins)

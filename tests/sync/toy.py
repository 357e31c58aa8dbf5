# SPDX-License-Identifier: Apache-2.0
"""A small model whose every shard is written out by plain indexing, for trainers (tp2, ep2) and rollouts (tp2)."""

from __future__ import annotations

import torch

from layout_kernels.spec import Spec

GROUPS, QUERIES, WIDTH, HIDDEN, EXPERTS, INNER, VOCAB, PADDED = 4, 2, 8, 16, 4, 16, 10, 12
BF16, FP32 = torch.bfloat16, torch.float32
ODD = "quirks/ \n\"'\\ü🙂.weight"  # names are any text


def _bits(step: int, salt: int, *shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    """Any bits at all, NaN and infinities among them."""
    generator = torch.Generator().manual_seed(1000 * step + salt)
    raw = torch.randint(0, 256, (*shape, dtype.itemsize), dtype=torch.uint8, generator=generator)
    return raw.view(dtype).view(shape)


def whole(step: int) -> dict[str, torch.Tensor]:
    """The model of one training step, axis by axis."""
    return {
        "qkv": _bits(step, 1, GROUPS, QUERIES + 2, WIDTH, HIDDEN),
        "experts": _bits(step, 2, EXPERTS, 2, INNER, HIDDEN),
        "norm": _bits(step, 3, HIDDEN),
        "router": _bits(step, 4, EXPERTS, HIDDEN, dtype=FP32),
        "embed": _bits(step, 5, VOCAB, HIDDEN),
        "odd": _bits(step, 6, HIDDEN, HIDDEN),
        "scale": _bits(step, 7, dtype=FP32),
        "flags": _bits(step, 8, HIDDEN, dtype=torch.int64),
    }


DIMS = {
    "qkv": {"g": GROUPS, "r": QUERIES, "d": WIDTH, "h": HIDDEN},
    "experts": {"e": EXPERTS, "i": INNER, "h": HIDDEN},
    "norm": {"h": HIDDEN},
    "router": {"e": EXPERTS, "h": HIDDEN},
    "embed": {"v": VOCAB, "p": PADDED - VOCAB, "h": HIDDEN},
    "odd": {"o": HIDDEN, "h": HIDDEN},
    "scale": {},
    "flags": {"h": HIDDEN},
    "nothing": {"n": 0, "h": HIDDEN},
}


def _spec(of: str, layout: str, rank: int, **fields: object) -> Spec:
    mesh = {"tp": (2, rank), "ep": (2, rank)}
    return Spec(layout, of=of, dims=DIMS[of], mesh=mesh, **fields)  # type: ignore[arg-type]


def trainer_specs(rank: int) -> dict[str, Spec]:
    specs = {
        "layer.qkv": _spec("qkv", "(g [q:r k v] d)/tp h", rank),
        "layer.experts": _spec("experts", "e/ep h ([gate up] i)", rank, declared="h (e/ep [gate up] i)"),
        "layer.norm": _spec("norm", "h", rank),
        "layer.router": _spec("router", "e h", rank),
        "embed": _spec("embed", "[token:v pad:p]/tp h", rank, padding={"pad": "keep"}),
        "scale": _spec("scale", "", rank),
        "nothing": _spec("nothing", "n h", rank),
    }
    if rank == 0:  # only there, and not contiguous
        specs[ODD] = _spec("odd", "o h", rank)
    else:
        specs["flags"] = _spec("flags", "h", rank)
    return specs


def trainer_tensors(rank: int, step: int) -> dict[str, torch.Tensor]:
    model = whole(step)
    rows = PADDED // 2
    padded = torch.cat([model["embed"], _bits(step, 9 + rank, PADDED - VOCAB, HIDDEN)])
    half = slice(rank * EXPERTS // 2, (rank + 1) * EXPERTS // 2)
    experts = model["experts"][half].reshape(EXPERTS // 2, 2 * INNER, HIDDEN).transpose(1, 2).contiguous()
    tensors = {
        "layer.qkv": model["qkv"].reshape(-1, HIDDEN).chunk(2)[rank].contiguous(),
        "layer.experts": experts.view(HIDDEN, EXPERTS // 2 * 2 * INNER),
        "layer.norm": model["norm"],
        "layer.router": model["router"],
        "embed": padded[rank * rows : (rank + 1) * rows].contiguous(),
        "scale": model["scale"],
        "nothing": torch.empty(0, HIDDEN, dtype=BF16),
    }
    if rank == 0:
        tensors[ODD] = torch.empty_strided((HIDDEN, HIDDEN), (3, 3 * HIDDEN + 1), dtype=BF16)
        tensors[ODD].copy_(model["odd"])
    else:
        tensors["flags"] = model["flags"]
    return tensors


def rollout_specs(rank: int) -> dict[str, Spec]:
    return {
        "qkv_proj": _spec("qkv", "([q:(g r)/tp k:g/tp v:g/tp] d) h", rank),
        "w13": _spec("experts", "e ([gate up] i/tp) h", rank),
        "norm": _spec("norm", "h", rank),
        "gate": _spec("router", "e h", rank),
        "embed_tokens": _spec("embed", "[token:v pad:p]/tp h", rank, padding={"pad": "zero"}),
        "odd.T": _spec("odd", "h o", rank),
        "scale": _spec("scale", "", rank),
        "flags": _spec("flags", "h", rank),
        "nothing": _spec("nothing", "n h", rank),
    }


def rollout_tensors(rank: int) -> dict[str, torch.Tensor]:
    """Poisoned, and two of them not contiguous."""
    tensors = {}
    for name, value in expected(rank, 0).items():
        tensors[name] = torch.empty_like(value)
    tensors["odd.T"] = torch.empty(HIDDEN, 2 * HIDDEN, dtype=BF16)[:, 1::2]
    tensors["qkv_proj"] = torch.empty(HIDDEN, tensors["qkv_proj"].shape[0], dtype=BF16).t()
    for tensor in tensors.values():
        tensor.fill_(7)
    return tensors


def expected(rank: int, step: int) -> dict[str, torch.Tensor]:
    """What a rollout must hold after a step, by indexing the whole model."""
    model = whole(step)
    groups, inner, rows = GROUPS // 2, INNER // 2, PADDED // 2
    mine = model["qkv"][rank * groups : (rank + 1) * groups]
    parts = [part.reshape(-1, HIDDEN) for part in (mine[:, :QUERIES], mine[:, QUERIES], mine[:, QUERIES + 1])]
    embed = torch.cat([model["embed"], torch.zeros(PADDED - VOCAB, HIDDEN, dtype=BF16)])
    return {
        "qkv_proj": torch.cat(parts),
        "w13": model["experts"][:, :, rank * inner : (rank + 1) * inner].reshape(EXPERTS, 2 * inner, HIDDEN),
        "norm": model["norm"],
        "gate": model["router"],
        "embed_tokens": embed[rank * rows : (rank + 1) * rows],
        "odd.T": model["odd"].t().contiguous(),
        "scale": model["scale"],
        "flags": model["flags"],
        "nothing": torch.empty(0, HIDDEN, dtype=BF16),
    }


def differences(tensors: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> list[str]:
    """The names of tensors that are not the wanted ones, byte for byte."""

    def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.contiguous().view(-1).view(torch.uint8)

    return [name for name, value in wanted.items() if not torch.equal(bytes_of(tensors[name]), bytes_of(value))]

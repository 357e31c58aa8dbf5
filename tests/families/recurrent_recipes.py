# SPDX-License-Identifier: Apache-2.0
"""Delta nets and Mamba 2 as trainers hold them: sections, each with its heads in order and cut by itself."""

from __future__ import annotations

from typing import Any

import torch
from recipes import Named, Options, Rank, Reader, columns, rows


def delta_net_pieces(read: Reader) -> list[torch.Tensor]:
    """q, k, v, z, b, a of a delta net, each with its heads in order."""
    at, config, hf = f"{read.at}linear_attn.", read.config, read.hf
    keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
    size, width = config["linear_key_head_dim"], config["linear_value_head_dim"]
    if read.has(f"{at}in_proj_qkv.weight"):
        qkv = hf[f"{at}in_proj_qkv.weight"].split([keys * size, keys * size, values * width])
        return [*qkv, *(hf[f"{at}in_proj_{part}.weight"] for part in "zba")]
    share = values // keys
    wide = [x.split([size, size, share * width, share * width]) for x in hf[f"{at}in_proj_qkvz.weight"].chunk(keys)]
    narrow = [x.split([share, share]) for x in hf[f"{at}in_proj_ba.weight"].chunk(keys)]
    return [torch.cat(parts) for parts in [*zip(*wide, strict=True), *zip(*narrow, strict=True)]]


def trained_delta_net(read: Reader, options: Options, rank: Rank) -> Named:
    at, here, config = f"{read.at}linear_attn.", "self_attention.", read.config
    yield f"{here}in_proj.weight", torch.cat([rows(part, rank.tp) for part in delta_net_pieces(read)])
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    conv = read.hf[f"{at}conv1d.weight"]
    parts = conv.split([keys, keys, conv.shape[0] - 2 * keys])
    yield f"{here}conv1d.weight", torch.cat([rows(part, rank.tp) for part in parts])
    for name in ("dt_bias", "A_log"):
        yield here + name, rows(read.hf[at + name], rank.tp)
    yield f"{here}out_proj.weight", columns(read.hf[f"{at}out_proj.weight"], rank.tp)


def mamba_sections(config: dict[str, Any], conv: bool) -> list[int]:
    heads, groups = config["mamba_num_heads"], config["n_groups"] * config["ssm_state_size"]
    inner = heads * config["mamba_head_dim"]
    return [inner, groups, groups] if conv else [inner, inner, groups, groups, heads]


def trained_mamba(read: Reader, options: Options, rank: Rank) -> Named:
    at, hf = f"{read.at}mixer.", read.hf
    for name, conv in (("in_proj.weight", False), ("conv1d.weight", True), ("conv1d.bias", True)):
        parts = hf[at + name].split(mamba_sections(read.config, conv))
        yield f"mixer.{name}", torch.cat([rows(part, rank.tp) for part in parts])
    for name in ("A_log", "D", "dt_bias", "norm.weight"):
        yield f"mixer.{name}", rows(hf[at + name], rank.tp)
    yield "mixer.out_proj.weight", columns(hf[f"{at}out_proj.weight"], rank.tp)

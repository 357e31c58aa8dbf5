# SPDX-License-Identifier: Apache-2.0
"""What a demo runs: the model, the ranks of both sides, and which weights each of them holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ..errors import LayoutError, nearest
from ..families import Family, family, published
from ..spec import Spec

TRAIN = ("tp", "ep", "etp", "pp")
ROLLOUT = ("tp", "ep")
TRANSPORTS = ("broadcast",)


@dataclass(frozen=True)
class Settings:
    """The choices of a demo; plain data, so that a process can be told them on its command line."""

    config: dict[str, Any]
    title: str
    steps: int
    train: dict[str, int]
    experts: str
    rollout: dict[str, int]
    engine: str
    device: str
    address: str = ""
    dump: str | None = None

    def to_json(self) -> str:
        """As text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """The settings that `to_json` wrote."""
        return cls(**json.loads(text))

    @property
    def family(self) -> Family:
        """The model."""
        return family(self.config)

    @property
    def trainers(self) -> int:
        """How many trainer processes the mesh makes: attention and experts share the ranks of a pipeline stage."""
        dense, sparse = self.train["tp"], self.train["ep"] * self.train["etp"]
        return self.train["pp"] * max(dense, sparse)

    @property
    def rollouts(self) -> int:
        """How many rollout processes: expert parallelism runs over the tensor-parallel ranks."""
        return max(self.rollout["tp"], self.rollout["ep"])

    def specs(self, role: str, rank: int) -> dict[str, Spec]:
        """What a rank holds."""
        if role == "trainer":
            stage = self.trainers // self.train["pp"]
            inner, pp = rank % stage, rank // stage
            etp = self.train["etp"]
            mesh = {
                "tp": (self.train["tp"], inner % self.train["tp"]),
                "etp": (etp, inner % etp),
                "ep": (self.train["ep"], inner // etp % self.train["ep"]),
                "pp": (self.train["pp"], pp),
            }
            layers = self.family.size("layers")  # uneven where they do not divide
            mine = range(layers * pp // self.train["pp"], layers * (pp + 1) // self.train["pp"])
            options: dict[str, Any] = {"experts": self.experts, "spec": "local", "dtype": torch.bfloat16}
            return self.family.specs("megatron", mesh=mesh, layers=list(mine), **options)
        mesh = {name: (size, rank % size) for name, size in self.rollout.items()}
        return self.family.specs(self.engine, mesh=mesh, dtype=torch.bfloat16)


def settings(
    *,
    model: str,
    config: str | None,
    scale: float,
    steps: int,
    train: str,
    experts: str,
    rollout: str,
    engine: str,
    transport: str,
    device: str,
    dump: str | None,
) -> Settings:
    """The settings of a command line, checked.

    Raises
    ------
    LayoutError
        Naming the option and what it may be.
    """
    if transport not in TRANSPORTS:
        raise LayoutError(f"--transport {transport!r}: {' or '.join(TRANSPORTS)} was wanted")
    if steps < 1:
        raise LayoutError(f"--steps {steps}: at least 1 was wanted")
    sizes = family(config).config if config else published(model, scale)
    title = config or (model if scale == 1 else f"{model} at 1/{scale:g} of its size")
    train_mesh = parse_mesh("--train", train, TRAIN)
    train_mesh.setdefault("etp", 1 if train_mesh.get("ep", 1) > 1 else train_mesh.get("tp", 1))
    chosen = Settings(
        config=sizes,
        title=title,
        steps=steps,
        train={name: train_mesh.get(name, 1) for name in TRAIN},
        experts=experts,
        rollout={name: parse_mesh("--rollout", rollout, ROLLOUT).get(name, 1) for name in ROLLOUT},
        engine=engine,
        device=device,
        dump=None if dump is None else str(Path(dump).resolve()),
    )
    dense, sparse = chosen.train["tp"], chosen.train["ep"] * chosen.train["etp"]
    if max(dense, sparse) % min(dense, sparse):
        raise LayoutError(
            f"--train {train}: {dense} tp ranks and {sparse} ep x etp ranks do not cover the same processes"
        )
    return chosen


def parse_mesh(option: str, text: str, known: tuple[str, ...]) -> dict[str, int]:
    """``"tp=2,ep=2"`` -> ``{"tp": 2, "ep": 2}``."""
    mesh: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, size = part.partition("=")
        if name not in known or not size.isdigit() or int(size) < 1:
            raise LayoutError(
                f"{option} {text!r}: {part!r} is not one of {', '.join(f'{k}=N' for k in known)}{nearest(name, known)}"
            )
        mesh[name] = int(size)
    return mesh


def said(mesh: Mapping[str, int]) -> str:
    """``{"tp": 2, "ep": 1}`` -> ``"tp2"``."""
    return " ".join(f"{name}{size}" for name, size in mesh.items() if size > 1) or "one rank"

# SPDX-License-Identifier: Apache-2.0
"""What a family is: blocks of rows, and which fields of its config are which quantities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .blocks import EMBEDDING
from .systems import STORAGES
from .table import Block, Row


@dataclass(frozen=True)
class Model:
    """One family: blocks of the model, of a layer and of multi-token prediction, and its quantities.

    ``drafts`` says how checkpoints number the layers of multi-token prediction: as `systems.PLACES` has them.
    """

    title: str
    layer: tuple[Block, ...]
    mtp: tuple[Block, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict, hash=False)
    derived: Mapping[str, str] = field(default_factory=dict, hash=False)
    refused: Mapping[str, str] = field(default_factory=dict, hash=False)
    drafts: str = "behind"
    model: tuple[Block, ...] = (EMBEDDING,)

    @property
    def expert_rows(self) -> list[Row]:
        """The rows of routed experts' own tensors."""
        return [row for block in self.layer for row in block.rows if row.of.startswith("layers.experts.")]

    @property
    def storages(self) -> tuple[str, ...]:
        """The storages of routed experts that all their rows have; all, where there are none."""
        return tuple(name for name, (column,) in STORAGES.items() if all(column in r.columns for r in self.expert_rows))

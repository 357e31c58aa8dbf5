# SPDX-License-Identifier: Apache-2.0
"""What a sync did, for people and for machines."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

STAGES = ("agree", "plan", "pack", "wire", "scatter", "verify")


@dataclass
class SyncReport:
    """What one rank did in one sync.

    Attributes
    ----------
    version : int
    name : str
        The rank, such as ``"rollout 1"``.
    nbytes : int
        Bytes that this rank sent or received.
    seconds : float
        From the call to its end.
    stages : dict of str to float
        Seconds that this rank spent in each stage: ``agree`` (until all ranks came and said the same), ``plan`` (only
        where they had to agree anew), ``pack``, ``wire`` (waiting for bytes to move: what the other stages did not
        hide), ``scatter``, ``verify``. On an accelerator pack and scatter are queued, and their time shows in ``wire``.
    launches : int
        Calls of a backend's kernel.
    extra_bytes : int
        Buffers that the sync holds beside the weights: two buckets at most, and a third to verify on a receiver.
    tensors, buckets : int
        How many of each this rank sent or filled.
    verified : bool
        Whether the bytes were compared by digest; see `WeightReceiver`.
    """

    version: int
    name: str
    nbytes: int = 0
    seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    launches: int = 0
    extra_bytes: int = 0
    tensors: int = 0
    buckets: int = 0
    verified: bool = False

    @property
    def bytes_per_second(self) -> float:
        """Bytes over all the seconds."""
        return self.nbytes / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"bytes_per_second": self.bytes_per_second}

    def __str__(self) -> str:
        stages = ", ".join(f"{stage} {self.stages[stage]:.3f}" for stage in STAGES if self.stages.get(stage))
        return (
            f"{self.name}: version {self.version}, {readable(self.nbytes)} of {self.tensors} tensors in {self.buckets} "
            f"buckets, {self.seconds:.3f} s ({stages}), {readable(self.bytes_per_second)}/s, {self.launches} launches, "
            f"{readable(self.extra_bytes)} beside the weights{', verified' if self.verified else ''}"
        )


def readable(nbytes: float) -> str:
    """``1536`` -> ``"1.5 KiB"``."""
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.2f} GiB"

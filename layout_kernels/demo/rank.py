# SPDX-License-Identifier: Apache-2.0
"""One process of a demo: ``python -m layout_kernels.demo.rank SETTINGS ROLE RANK``; events as JSON lines on stdout.

Weights say by their bits which element of the model they are (`layout_kernels.testing.tagged`), times an odd number
that changes with the step. So every rollout knows what it must hold, from its Specs alone, without any conversion.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ..backends.reference import cast
from ..errors import LayoutError
from ..spec import Spec
from ..sync import Channel, WeightReceiver, WeightSender, connect
from ..testing import BITS, tagged
from .settings import Settings

PLAIN = 64 << 20  # bytes of one plain broadcast


def main() -> None:
    """Run one rank."""
    settings, role, rank = Settings.from_json(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    ranks = settings.trainers + settings.rollouts
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks))
    Rank(settings, role, rank).run()


def emit(event: str, **fields: Any) -> None:
    """Tell the parent."""
    print(json.dumps({"event": event, **fields}), flush=True)


class Rank:
    """A trainer or a rollout with its weights."""

    def __init__(self, settings: Settings, role: str, rank: int) -> None:
        self.settings, self.role, self.rank = settings, role, rank
        self.specs = settings.specs(role, rank)
        self.device = own_device(settings, role, rank)
        sources = [spec for trainer in range(settings.trainers) for spec in settings.specs("trainer", trainer).values()]
        trained = {spec.of: spec.dtype or torch.bfloat16 for spec in sources}
        self.first = {name: tagged(spec, trained.get(spec.of, torch.bfloat16)) for name, spec in self.specs.items()}
        self.tensors = {
            name: torch.zeros(spec.shape(), dtype=spec.dtype or torch.bfloat16, device=self.device)
            for name, spec in self.specs.items()
        }

    def run(self) -> None:
        """Meet the others, sync at every step, verify, and measure what a plain broadcast takes."""
        emit("ready", role=self.role, rank=self.rank, tensors=len(self.tensors), nbytes=self.nbytes)
        world = self.settings.trainers if self.role == "trainer" else self.settings.rollouts
        backend = {"cuda": "nccl", "npu": "hccl"}.get(self.device.type, "gloo")
        channel = connect(self.settings.address, role=self.role, rank=self.rank, world=world, backend=backend)
        kind = WeightSender if self.role == "trainer" else WeightReceiver
        participant = kind(self.specs, self.tensors, channel)
        where = {name: tensor.data_ptr() for name, tensor in self.tensors.items()}
        for step in range(1, self.settings.steps + 1):
            self.train(step)
            self.sync(participant, step)
            if self.role == "rollout":
                self.verify(step, where)
            if self.settings.dump:
                dump(
                    Path(self.settings.dump) / f"step{step}" / f"{self.role}{self.rank}.safetensors",
                    self.specs,
                    self.tensors,
                )
        self.plain(channel)
        channel.close()

    @property
    def nbytes(self) -> int:
        """Bytes of this rank's weights."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def at(self, name: str, step: int) -> torch.Tensor:
        """What a tensor must hold at a step, in the dtype that it has here."""
        first = self.first[name]
        return cast((_bits(first) * (2 * step + 1)).view(first.dtype), self.tensors[name].dtype)

    def train(self, step: int) -> None:
        """New weights on a trainer; other bits than those that must come on a rollout."""
        for name, tensor in self.tensors.items():
            if self.role == "trainer":
                tensor.copy_(self.at(name, step))
            elif step == 1:
                tensor.copy_(self.at(name, step + 1))

    def sync(self, participant: WeightSender | WeightReceiver, step: int) -> None:
        """One sync, with its progress told as it goes."""
        running = participant.start(step)
        while not running.done:
            emit("progress", role=self.role, rank=self.rank, step=step, fraction=running.progress)
            time.sleep(0.05)
        report = running.wait()
        emit("report", role=self.role, rank=self.rank, step=step, **{"report": report.to_json()})

    def verify(self, step: int, where: dict[str, int]) -> None:
        """Every byte is what the Specs say, and lies where it lay."""
        wrong = [
            name
            for name, held in self.tensors.items()
            if not torch.equal(_bits(held.cpu()), _bits(self.at(name, step)))
        ]
        moved = [name for name, tensor in self.tensors.items() if tensor.data_ptr() != where[name]]
        emit("verified", role=self.role, rank=self.rank, step=step, tensors=len(self.tensors), different=wrong + moved)

    def plain(self, channel: Channel) -> None:
        """Broadcast as many bytes as a sync moves, out of one buffer, from the trainers in turn."""
        total = sum(_trainer_bytes(self.settings))
        trainers = self.settings.trainers
        rollouts = tuple(range(trainers, trainers + self.settings.rollouts))
        buffers = [torch.zeros(min(PLAIN, total), dtype=torch.uint8, device=self.device) for _ in range(2)]
        channel.barrier("the plain broadcast")
        begin = time.perf_counter()
        waiting: list[Any] = []
        for number, size in enumerate(_pieces(total)):
            owner = number % trainers
            if self.role == "trainer" and owner != self.rank:
                continue
            if len(waiting) == 2:
                waiting.pop(0).wait()
            waiting.append(channel.start_broadcast(buffers[number % 2][:size], owner, (owner, *rollouts)))
        for transfer in waiting:
            transfer.wait()
        channel.barrier("the plain broadcast's end")
        emit("plain", role=self.role, rank=self.rank, nbytes=total, seconds=time.perf_counter() - begin)


def own_device(settings: Settings, role: str, rank: int) -> torch.device:
    """A device for each rank of the demo: collectives refuse two ranks on one accelerator."""
    kind = torch.device(settings.device)
    if kind.type == "cpu" or kind.index is not None:
        return kind
    ranks = settings.trainers + settings.rollouts
    found = torch.get_device_module(kind.type).device_count()
    if found < ranks:
        raise LayoutError(f"--device {settings.device}: {ranks} ranks want a device each, and there are {found}")
    return torch.device(kind.type, rank + (settings.trainers if role == "rollout" else 0))


def _trainer_bytes(settings: Settings) -> list[int]:
    """Bytes of every trainer's share: the model once, replicated tensors counted on one rank."""
    seen: set[Any] = set()
    shares = []
    for rank in range(settings.trainers):
        share = 0
        for name, spec in settings.specs("trainer", rank).items():
            if (name, spec) not in seen:
                seen.add((name, spec))
                share += torch.Size(spec.shape()).numel() * (spec.dtype or torch.bfloat16).itemsize
        shares.append(share)
    return shares


def _pieces(total: int) -> Iterator[int]:
    while total > 0:
        yield min(PLAIN, total)
        total -= PLAIN


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(BITS[tensor.element_size()])


def dump(path: Path, specs: dict[str, Spec], tensors: dict[str, torch.Tensor]) -> None:
    """A rank's weights as a safetensors file; its metadata holds each tensor's Spec as JSON."""
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {name: json.dumps(spec.to_json()) for name, spec in specs.items()}
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, str(path), metadata)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""`WeightReceiver`: a rollout's rank of a sync."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

import torch

from ..aliasing import drop_aliases
from ..bound import Bound
from ..plan import CopyPlan
from ..spec import Spec
from . import proof
from .agreement import Agreement
from .buckets import Bucket
from .channel import Channel, SyncError, Transfer
from .participant import Participant
from .report import SyncReport
from .state import ReceiverState, Record
from .wire import buffers, entry_view, slot_sizes


@dataclass(frozen=True)
class _Step:
    """A bucket that this rank receives: where it lands, and the scatter out of it (None: nothing of it is wanted)."""

    bucket: Bucket
    landing: torch.Tensor
    scatter: Bound | None
    targets: tuple[str, ...]
    part: CopyPlan


class WeightReceiver(Participant):
    """Fills the parameters of one rollout rank, in place, in the one pass that permutes.

    Parameters
    ----------
    specs : mapping of str to Spec
        What this rank wants; each Spec with its dims.
    tensors : mapping of str to torch.Tensor
        The same names. Written at every sync, of any strides; their ``data_ptr`` stays.
    channel : Channel
    bucket_bytes, unused, verify
        As those of `WeightSender`; None leaves it to the trainers. ``verify=True`` compares a digest of every entry
        that arrives with the sender's, reads each target back, and refuses replicas that differ before a byte moves.
    backend : str
        What scatters; see `layout_kernels.backends`.

    Raises
    ------
    LayoutError
        At the first sync, or in `agree`: where any rank refuses, on all ranks, before anything is written.
    """

    role = "rollout"

    def __init__(
        self,
        specs: Mapping[str, Spec],
        tensors: Mapping[str, torch.Tensor],
        channel: Channel,
        *,
        bucket_bytes: int | None = None,
        unused: str | None = None,
        verify: bool = False,
        backend: str = "auto",
    ) -> None:
        options = {"bucket_bytes": bucket_bytes, "unused": unused}
        super().__init__(specs, tensors, channel, options, verify, backend)
        self._steps: list[_Step] = []
        self._buffers: list[torch.Tensor] = []
        self._zero: Bound | None = None
        self._record = Record(tuple(specs))

    def state(self) -> ReceiverState:
        """What the tensors hold now: one version, or after a sync that broke off, which are new, old and torn."""
        return self._record.state()

    def prepare(self, agreement: Agreement) -> None:
        plan = self._unaliased(agreement)
        self._buffers = buffers(slot_sizes(agreement.buckets), self._device())
        self._steps = []
        for number, bucket in enumerate(agreement.buckets):
            self._steps.append(self._step(agreement, plan, bucket, self._buffers[number % 2]))
        self._fills = plan.part(())
        self._zero = self._fills.bind({}, self._touched(self._fills), self._backend) if len(self._fills.table) else None

    def _unaliased(self, agreement: Agreement) -> CopyPlan:
        """The plan with shared storage written once, proved for all buckets together."""
        plan = agreement.plan
        assert plan is not None
        targets = [self.tensors.get(str(key)) for key in plan.target_keys]
        return replace(plan, table=drop_aliases(plan.table, targets, plan.target_keys))

    def _step(self, agreement: Agreement, plan: CopyPlan, bucket: Bucket, buffer: torch.Tensor) -> _Step:
        part = plan.part([entry.key for entry in bucket.entries])
        landing = buffer[: bucket.nbytes]
        if not len(part.table):
            return _Step(bucket, landing, None, (), part)
        targets = self._touched(part)
        scatter = part.bind(_views(agreement, bucket, buffer), targets, self._backend)
        return _Step(bucket, landing, scatter, tuple(map(str, targets)), part)

    def _touched(self, part: CopyPlan) -> dict[Hashable, torch.Tensor]:
        return {key: self.tensors[str(key)] for key in part.targets}

    def strides(self) -> dict[str, tuple[int, ...]]:
        return {name: tensor.stride() for name, tensor in self.tensors.items() if not tensor.is_contiguous()}

    def move(self, version: int, report: SyncReport, proving: bool) -> None:
        self._record.begin(version, [step.targets for step in self._steps] + [tuple(map(str, self._fills.targets))])
        under_way: list[Transfer] = [self._post(step) for step in self._steps[:2]]
        for number, step in enumerate(self._steps):
            self.channel.note(f"version {version}: receiving bucket {number + 1} of {len(self._steps)}")
            with self._stage("wire"):
                under_way.pop(0).wait()
            self._scatter(number, step.scatter, report)
            if proving:
                self._prove(number, step)
            self._moved += step.bucket.nbytes
            if number + 2 < len(self._steps):
                under_way.append(self._post(self._steps[number + 2]))
        self._scatter(len(self._steps), self._zero, report)
        self._record.complete(version)
        report.buckets, report.tensors = len(self._steps), len(self.tensors)
        report.extra_bytes = sum(buffer.numel() for buffer in self._buffers)
        if proving:
            report.extra_bytes += max(self.sizes(), default=0)

    def _post(self, step: _Step) -> Transfer:
        assert self._agreement is not None
        owner = step.bucket.owner
        return self.channel.start_broadcast(step.landing, owner, (owner, *self._agreement.rollouts))

    def _scatter(self, number: int, scatter: Bound | None, report: SyncReport) -> None:
        if scatter is None:
            return
        self._record.writing(number)
        with self._stage("scatter"):
            scatter.run()
        self._record.written(number)
        report.launches += scatter.launches

    def _prove(self, number: int, step: _Step) -> None:
        """Digests of what arrived; and what the targets hold, read back, is the bucket again."""
        assert self._agreement is not None
        with self._stage("verify"):
            self._digests[str(number)] = proof.bucket_digests(step.bucket, step.landing)
            if step.scatter is None:
                return
            again = step.landing.clone()
            views = _views(self._agreement, step.bucket, again)
            proof.reader(step.part, views, self._touched(step.part)).run()
            for entry in step.bucket.entries:
                run = slice(entry.offset, entry.offset + entry.nbytes)
                if not torch.equal(again[run], step.landing[run]):
                    self._faults.append(f"what the targets hold of {entry.name!r} is not what arrived")

    def broke(self, error: BaseException) -> None:
        """Bytes that verification found wrong make every tensor doubtful."""
        if self._record.state().whole and not isinstance(error, SyncError):
            self._record.doubt()

    def release(self) -> None:
        self._steps, self._buffers, self._zero = [], [], None

    def sizes(self) -> list[int]:
        return [step.bucket.nbytes for step in self._steps]


def _views(agreement: Agreement, bucket: Bucket, buffer: torch.Tensor) -> dict[Hashable, torch.Tensor]:
    return {entry.key: entry_view(buffer, entry, agreement.holding(entry)) for entry in bucket.entries}

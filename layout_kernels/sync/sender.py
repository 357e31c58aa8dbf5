# SPDX-License-Identifier: Apache-2.0
"""`WeightSender`: a trainer's rank of a sync."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import torch

from ..bound import Bound
from ..spec import Spec
from . import proof
from .agreement import Agreement
from .buckets import Bucket
from .channel import Channel, Transfer
from .participant import Participant
from .report import SyncReport
from .wire import buffers, flat_view, gather_plan, slot_sizes


@dataclass(frozen=True)
class _Parcel:
    """A bucket that this rank sends, and the gather that fills it (None: the bytes are sent from where they lie)."""

    number: int  # among the buckets of all ranks
    bucket: Bucket
    payload: torch.Tensor
    gather: Bound | None


class WeightSender(Participant):
    """Sends what one trainer rank holds; replicas share the work, and other trainers' weights never come here.

    Parameters
    ----------
    specs : mapping of str to Spec
        What this rank holds; each Spec with its dims.
    tensors : mapping of str to torch.Tensor
        The same names. Read at every sync, of any strides; zero-size tensors and none at all are fine.
    channel : Channel
    bucket_bytes : int, optional
        The bound on what is packed and sent in one go. By default 256 MiB, and less for a small model. Two buckets are
        held in memory, and none where each tensor fills a bucket by itself.
    unused : {"refuse", "allow"}, optional
        Whether elements that no receiver wants are an error (the default). Tensors that none wants are not sent.
    verify : bool
        Compare replicas before, and digests of every bucket after each sync.
    backend : str
        What packs; see `layout_kernels.backends`.

    Raises
    ------
    LayoutError
        At the first sync, or in `agree`: where any rank refuses, on all ranks, before anything is written.
    """

    role = "trainer"

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
        self._parcels: list[_Parcel] = []
        self._buffers: list[torch.Tensor] = []

    def prepare(self, agreement: Agreement) -> None:
        mine = [(n, bucket) for n, bucket in enumerate(agreement.buckets) if bucket.owner == self.channel.rank]
        packed = [bucket for _, bucket in mine if not self._lies_ready(bucket)]
        self._buffers = buffers(slot_sizes(packed), self._device())
        slots = {id(bucket): self._buffers[place % 2] for place, bucket in enumerate(packed)}
        self._parcels = [self._parcel(number, bucket, slots.get(id(bucket))) for number, bucket in mine]

    def _lies_ready(self, bucket: Bucket) -> bool:
        return len(bucket.entries) == 1 and self.tensors[bucket.entries[0].name].is_contiguous()

    def _parcel(self, number: int, bucket: Bucket, buffer: torch.Tensor | None) -> _Parcel:
        if buffer is None:
            entry = bucket.entries[0]
            flat = self.tensors[entry.name].detach().view(-1)[entry.start : entry.stop]
            return _Parcel(number, bucket, flat.view(torch.uint8), None)
        plan = gather_plan(self.tensors, bucket.entries)
        named: dict[Hashable, torch.Tensor] = {entry.name: self.tensors[entry.name] for entry in bucket.entries}
        views: dict[Hashable, torch.Tensor] = {}
        for entry in bucket.entries:
            view = flat_view(buffer, entry, self.tensors[entry.name].dtype)
            views[entry.key] = view if self.tensors[entry.name].dim() else view.view(())
        return _Parcel(number, bucket, buffer[: bucket.nbytes], plan.bind(named, views, self._backend))

    def move(self, version: int, report: SyncReport, proving: bool) -> None:
        assert self._agreement is not None
        ranks = (self.channel.rank, *self._agreement.rollouts)
        under_way: list[tuple[_Parcel, Transfer]] = []
        for number, parcel in enumerate(self._parcels):
            if len(under_way) == 2:
                self._end(*under_way.pop(0))
            self._pack(parcel, report, proving)
            self.channel.note(f"version {version}: sending bucket {number + 1} of {len(self._parcels)}")
            under_way.append((parcel, self.channel.start_broadcast(parcel.payload, self.channel.rank, ranks)))
        for parcel, transfer in under_way:
            self._end(parcel, transfer)
        report.buckets = len(self._parcels)
        report.tensors = len({entry.name for parcel in self._parcels for entry in parcel.bucket.entries})
        report.extra_bytes = sum(buffer.numel() for buffer in self._buffers)

    def _pack(self, parcel: _Parcel, report: SyncReport, proving: bool) -> None:
        if parcel.gather is not None:
            with self._stage("pack"):
                parcel.gather.run()
            report.launches += parcel.gather.launches
        if proving:
            with self._stage("verify"):
                self._digests[str(parcel.number)] = proof.bucket_digests(parcel.bucket, parcel.payload)

    def _end(self, parcel: _Parcel, transfer: Transfer) -> None:
        with self._stage("wire"):
            transfer.wait()
        self._moved += parcel.bucket.nbytes

    def release(self) -> None:
        self._parcels, self._buffers = [], []

    def sizes(self) -> list[int]:
        return [parcel.bucket.nbytes for parcel in self._parcels]

# SPDX-License-Identifier: Apache-2.0
"""Which version each tensor of a receiver holds, so that a half-updated model is never mistaken for a whole one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ReceiverState:
    """What a receiver's tensors hold.

    Attributes
    ----------
    version : int or None
        The version that all of them hold; None before the first sync, or where a sync broke off in between.
    attempted : int or None
        The version of the last sync that began to write.
    new, old, torn : tuple of str
        After a sync that broke off: the tensors that hold all of the attempted version, those that it did not touch,
        and those that hold some of it.
    """

    version: int | None
    attempted: int | None
    new: tuple[str, ...] = ()
    old: tuple[str, ...] = ()
    torn: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether all tensors hold one version."""
        return self.version is not None

    def __str__(self) -> str:
        if self.whole:
            return f"version {self.version}"
        if not (self.new or self.old or self.torn):
            return "no sync yet"
        counts = f"{len(self.new)} tensors new, {len(self.old)} old, {len(self.torn)} torn"
        return f"broken off in version {self.attempted}: {counts}; the next sync repairs it"


class Record:
    """Keeps the state during syncs: two numbers a step, so that it costs the same whatever the number of tensors.

    The mark is left before a step writes, and taken back only when all steps have.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._version: int | None = None
        self._attempted: int | None = None
        self._steps: Sequence[Sequence[str]] = ()
        self._entered = self._written = 0
        self._whole = True
        self._torn: frozenset[str] = frozenset()  # by earlier syncs

    def begin(self, version: int, steps: Sequence[Sequence[str]]) -> None:
        """A sync begins, whose steps write these tensors."""
        if not self._whole:
            self._torn = self._sorted_out()[2]
        self._attempted, self._steps = version, steps
        self._entered = self._written = 0

    def writing(self, step: int) -> None:
        """A step is about to write."""
        self._whole = False
        self._entered = step + 1

    def written(self, step: int) -> None:
        """A step has written."""
        self._written = step + 1

    def complete(self, version: int) -> None:
        """All tensors hold the version."""
        self._version, self._whole, self._torn = version, True, frozenset()

    def doubt(self) -> None:
        """What was written turned out wrong: every tensor counts as torn until the next sync."""
        self._whole, self._torn, self._written = False, frozenset(self._names), 0
        self._steps = (self._names,)

    def state(self) -> ReceiverState:
        """See `WeightReceiver.state`."""
        if self._whole:
            return ReceiverState(self._version, self._attempted)
        groups = ((name for name in self._names if name in group) for group in self._sorted_out())
        return ReceiverState(None, self._attempted, *map(tuple, groups))

    def _sorted_out(self) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
        """The tensors that are new, old and torn."""
        touched = {name for step in self._steps[: self._entered] for name in step}
        to_come = {name for step in self._steps[self._written :] for name in step}
        torn = to_come & (touched | self._torn)
        return frozenset(self._names) - to_come, frozenset(to_come - torn), frozenset(torn)

# SPDX-License-Identifier: Apache-2.0
"""A CopyPlan: two sets of Specs and the proved table of blocks between them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from . import saving
from .bound import Bound, actual_strides, bind
from .compile import Strides, derive
from .dims import Frozen
from .errors import LayoutError
from .explain import explain
from .spec import Spec
from .table import Table, tabulate

Key = Any  # whatever is hashable: a name, (rank, name)
CHOICES = {"unused": ("refuse", "allow"), "replicas": ("refuse", "first")}


def compile(
    sources: Mapping[Key, Spec | str],
    targets: Mapping[Key, Spec | str],
    dims: Mapping[str, Any] | None = None,
    *,
    unused: str = "refuse",
    replicas: str = "refuse",
) -> CopyPlan:
    """Derive and prove the copy that fills every target from the sources.

    Two tensors that hold the same identity (logical tensor, tags, coordinates) hold the same number; the plan carries
    each wanted number to each place that wants it.

    Parameters
    ----------
    sources, targets : mapping of key to Spec
        Any hashable keys; where many ranks have the same names, ``(rank, name)``. A text is a Spec of that layout.
    dims : mapping, optional
        Sizes for the Specs that carry none of their own.
    unused : {"refuse", "allow"}
        Whether source elements that no target wants are an error.
    replicas : {"refuse", "first"}
        Whether two sources of one element are an error, or the first in the order of the mapping is read.

    Returns
    -------
    CopyPlan

    Raises
    ------
    LayoutError
        Where a target element has no source, a source element is held twice or wanted nowhere, sizes disagree or do
        not divide, or two cuts of an axis do not nest. Nothing was read or written.

    Examples
    --------
    >>> import layout_kernels as lk
    >>> plan = lk.compile({"fc1": "([gate up] i) h"}, {"w13": "h (i [gate up])"}, {"i": 4, "h": 2})
    >>> len(plan.table)
    1
    """
    for name, value in (("unused", unused), ("replicas", replicas)):
        if value not in CHOICES[name]:
            raise LayoutError(f"{name} is {value!r}: {' or '.join(map(repr, CHOICES[name]))} was wanted")
    shared = None if dims is None else Frozen({k: tuple(v) if isinstance(v, list) else v for k, v in dims.items()})
    return CopyPlan.derive(_specs(sources, shared), _specs(targets, shared), unused=unused, replicas=replicas)


def _specs(given: Mapping[Key, Spec | str], dims: Frozen[Any] | None) -> dict[Key, Spec]:
    specs: dict[Key, Spec] = {}
    for key, value in given.items():
        spec = value if isinstance(value, Spec) else Spec(value)
        specs[key] = spec.replace(dims=dims) if spec.dims is None and dims is not None else spec
    return specs


@dataclass(frozen=True, eq=False)
class CopyPlan:
    """What `layout_kernels.compile` returns; see there. Equal plans move the same elements between equal Specs."""

    sources: dict[Key, Spec]
    targets: dict[Key, Spec]
    source_keys: tuple[Key, ...]
    target_keys: tuple[Key, ...]
    table: Table
    unused: str
    replicas: str
    inverted: bool = False
    strides: tuple[Strides, Strides] = ({}, {})
    whole: bool = True

    @classmethod
    def derive(
        cls,
        sources: dict[Key, Spec],
        targets: dict[Key, Spec],
        *,
        unused: str,
        replicas: str,
        inverted: bool = False,
        strides: tuple[Strides, Strides] = ({}, {}),
    ) -> CopyPlan:
        """The plan for these Specs; ``strides`` (in elements) are given for tensors that are not contiguous."""
        blocks, source_keys, target_keys = derive(
            sources, targets, None, unused=unused, replicas=replicas, strides=strides, inverse=inverted
        )
        table = tabulate(blocks)
        return cls(sources, targets, tuple(source_keys), tuple(target_keys), table, unused, replicas, inverted, strides)

    def run(
        self, sources: Mapping[Key, torch.Tensor], targets: Mapping[Key, torch.Tensor], backend: str = "auto"
    ) -> None:
        """Fill the targets in place, once; see `bind`."""
        self.bind(sources, targets, backend).run()

    def bind(
        self, sources: Mapping[Key, torch.Tensor], targets: Mapping[Key, torch.Tensor], backend: str = "auto"
    ) -> Bound:
        """Check the tensors once and resolve their addresses; ``bound.run()`` then only replays.

        Parameters
        ----------
        sources, targets : mapping of key to torch.Tensor
            Every key of the plan; others are an error. The targets are written in place.
        backend : str
            "auto" picks by device; see `layout_kernels.backends`.

        Raises
        ------
        LayoutError
            Where a tensor is missing, unknown, of another shape or dtype than its Spec says, on another device than
            the backend's, not contiguous although ``declared``, or shares memory in a way that is refused.
        """
        return bind(self, sources, targets, backend)

    def inverse(self) -> CopyPlan:
        """The plan that fills the sources from the targets; an element that a target holds twice is read first.

        Raises
        ------
        LayoutError
            Where a source element is wanted by no target, so that it cannot be brought back.
        """
        return CopyPlan.derive(self.targets, self.sources, unused="allow", replicas="first", inverted=True)

    def check(self) -> None:
        """Derive the plan again from its Specs and compare.

        Raises
        ------
        LayoutError
            Where the table is not what the Specs say, for example in a saved plan that was changed.
        """
        if not self.whole:
            raise LayoutError("a part of a plan cannot be checked on its own: check the plan that it came from")
        again = self._again(self.strides)
        if again.table != self.table or again.source_keys != self.source_keys or again.target_keys != self.target_keys:
            raise LayoutError(
                f"the plan's table of {len(self.table)} blocks is not what its Specs say ({len(again.table)} blocks)"
            )

    def part(self, source_keys: Iterable[Key]) -> CopyPlan:
        """The plan with only the blocks that read these sources, and only the tensors that those touch.

        ``part(())`` has only the zero fills. A part cannot be checked on its own; the whole it came from was.
        """
        wanted = set(source_keys)
        numbers = np.array([key in wanted for key in self.source_keys] + [not wanted], dtype=bool)
        table = self.table.where(numbers[self.table.source])  # the last entry answers for -1, zero fills
        sources = {key: spec for key, spec in self.sources.items() if key in wanted}
        touched = {self.target_keys[number] for number in np.unique(table.target)}
        targets = {key: spec for key, spec in self.targets.items() if key in touched}
        return replace(self, sources=sources, targets=targets, table=table, unused="allow", whole=False)

    def fitted(self, sources: Mapping[Key, torch.Tensor], targets: Mapping[Key, torch.Tensor]) -> CopyPlan:
        """The same plan for the strides that these tensors have; `bind` does this by itself.

        Raises
        ------
        LayoutError
            As `bind` for missing, unknown and wrong tensors; also where this is a part of a plan and the strides are
            not those of the whole: fit the whole first.
        """
        strides = actual_strides("source", self.sources, sources), actual_strides("target", self.targets, targets)
        known = tuple(
            {k: v for k, v in mine.items() if k in specs}
            for mine, specs in zip(self.strides, (self.sources, self.targets), strict=True)
        )
        if strides == known:
            return self
        if not self.whole:
            raise LayoutError(
                "a part of a plan was bound to tensors with other strides: take the part from plan.fitted(…)"
            )
        return self._again(strides)

    def _again(self, strides: tuple[Strides, Strides]) -> CopyPlan:
        return CopyPlan.derive(
            self.sources,
            self.targets,
            unused=self.unused,
            replicas=self.replicas,
            inverted=self.inverted,
            strides=strides,
        )

    def explain(self) -> str:
        """A text for people: per pair of layouts the blocks, their shapes and strides, runs and bytes."""
        return explain(self)

    @property
    def elements(self) -> int:
        """How many target elements a run writes."""
        return int(self.table.elements.sum())

    @property
    def nbytes(self) -> int:
        """How many target bytes a run writes.

        Raises
        ------
        LayoutError
            Where neither the target's Spec nor its source's says a dtype; a `Bound` always knows.
        """
        if not len(self.table):
            return 0
        order = np.argsort(self.table.source, kind="stable")  # zero fills, which say no dtype, come first
        reads = dict(zip(self.table.target[order].tolist(), self.table.source[order].tolist(), strict=True))
        sizes = np.zeros(len(self.target_keys), dtype=np.int64)
        for target, source in reads.items():
            sizes[target] = self._itemsize(self.target_keys[target], source)
        return int((self.table.elements * sizes[self.table.target]).sum())

    def _itemsize(self, key: Key, source: int) -> int:
        dtype = self.targets[key].dtype or (self.sources[self.source_keys[source]].dtype if source >= 0 else None)
        if dtype is None:
            raise LayoutError(
                f"target {key!r}: no Spec says a dtype, so bytes are not known; bind the plan, or count .elements"
            )
        return dtype.itemsize

    @cached_property
    def digest(self) -> str:
        """A fingerprint of what the plan was made from: equal for equal Specs, keys and choices (hexadecimal)."""
        text = json.dumps(saving.made_from(self, ordered=False), sort_keys=True, default=repr)
        return hashlib.sha256(text.encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CopyPlan) or self.digest != other.digest or self.whole != other.whole:
            return False
        numbered_alike = (self.source_keys, self.target_keys) == (other.source_keys, other.target_keys)
        return self.table == other.table or not numbered_alike

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        sides = f"{len(self.sources)} sources -> {len(self.targets)} targets"
        return f"CopyPlan({sides}, {len(self.table)} blocks, {self.elements} elements)"

    def save(self, path: str | Path) -> None:
        """Write the plan with its Specs to a file.

        Raises
        ------
        LayoutError
            Where a key is no text, number or tuple of those, or this is a part of a plan.
        """
        if not self.whole:
            raise LayoutError("a part of a plan is not saved: save the whole, and take the part from what is loaded")
        saving.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> CopyPlan:
        """The plan of a file; `check` derives it again.

        Raises
        ------
        LayoutError
            Where the file holds no plan, or one that was changed.
        """
        return cls(**saving.load(Path(path)))

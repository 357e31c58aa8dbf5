# SPDX-License-Identifier: Apache-2.0
"""Tensors that share memory: equal elements at one address are written once, anything else is refused."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import torch

from .combs import Comb, CutsDoNotNestError, Digit, meet
from .errors import LayoutError
from .table import Shape, Table

Tensors = Sequence[torch.Tensor | None]
Block = tuple[int, Comb]  # source tensor, and the target addresses with the source offset as payload


def refuse_shared(
    sources: Tensors, targets: Tensors, source_keys: Sequence[Hashable], target_keys: Sequence[Hashable]
) -> None:
    """A source that lies in a target's memory would be overwritten while it is read.

    Raises
    ------
    LayoutError
        Naming both tensors.
    """
    ours, theirs = _spans(sources), _spans(targets)
    names = [(False, number) for number in ours[0]] + [(True, number) for number in theirs[0]]
    for one, two in _overlapping(np.concatenate([ours[1], theirs[1]])):
        (written, number), (other, partner) = sorted((names[one], names[two]))
        if written != other and _share(sources[number], targets[partner]):
            raise LayoutError(f"source {source_keys[number]!r} and target {target_keys[partner]!r} share memory")


def _share(source: torch.Tensor | None, target: torch.Tensor | None) -> bool:
    """Whether a byte belongs to both; two views of one buffer may lie between each other."""
    assert source is not None
    assert target is not None
    if overlaps_itself(source):  # its bytes are no comb
        return True
    try:
        return bool(meet(_bytes(source), _bytes(target))[0])
    except CutsDoNotNestError:
        return True


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two elements may lie at one address; steps of zero apart, which only repeat."""
    reach = 0
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if extent > 1 and stride:
            if stride <= reach:
                return True
            reach += stride * (extent - 1)
    return False


def _bytes(tensor: torch.Tensor) -> Comb:
    size = tensor.element_size()
    digits = {(stride * size, extent) for stride, extent in zip(tensor.stride(), tensor.shape, strict=True) if stride}
    steps = sorted(digits | {(1, size)}, reverse=True)
    return Comb(tensor.data_ptr(), tuple(Digit(step, extent, ()) for step, extent in steps if extent > 1), ())


def drop_aliases(table: Table, targets: Tensors, keys: Sequence[Hashable]) -> Table:
    """The table without the blocks that write what another target writes at the same addresses.

    Raises
    ------
    LayoutError
        Where two targets want different elements at one address, or it cannot be proved that they want the same.
    """
    numbers, spans = _spans(targets)
    pairs = sorted({tuple(sorted((numbers[a], numbers[b]))) for a, b in _overlapping(spans)})
    if not pairs:
        return table
    written = {number: _written(table, number, targets) for pair in pairs for number in pair}
    left = dict(written)
    for one, two in pairs:
        if _grid(targets[one]) != _grid(targets[two]):
            raise LayoutError(
                f"targets {keys[one]!r} and {keys[two]!r} share memory but not the size and place of elements"
            )
        left[two] = _without(left[two], written[one], str(keys[one]), str(keys[two]))
    return _rebuilt(table, left, targets)


def _grid(tensor: torch.Tensor | None) -> tuple[torch.dtype, int]:
    """Where a tensor's elements may begin; elements of two tensors are the same only where this agrees."""
    assert tensor is not None
    return tensor.dtype, tensor.data_ptr() % tensor.element_size()


def _spans(tensors: Tensors) -> tuple[list[int], np.ndarray]:
    """The tensors that have memory, and its first and last byte + 1."""
    numbers, spans = [], []
    for number, tensor in enumerate(tensors):
        if tensor is not None and tensor.numel():
            reach = sum(stride * (extent - 1) for stride, extent in zip(tensor.stride(), tensor.shape, strict=True)) + 1
            numbers.append(number)
            spans.append((tensor.data_ptr(), tensor.data_ptr() + reach * tensor.element_size()))
    return numbers, np.array(spans, dtype=np.int64).reshape(-1, 2)


def _overlapping(spans: np.ndarray) -> list[tuple[int, int]]:
    """Pairs of spans that meet; nothing but a sort where none do."""
    order = np.lexsort((spans[:, 1], spans[:, 0]))
    starts, stops = spans[order, 0], spans[order, 1]
    if len(order) < 2 or (starts[1:] >= np.maximum.accumulate(stops)[:-1]).all():
        return []
    pairs = []
    for place, stop in enumerate(stops):
        for other in range(place + 1, int(np.searchsorted(starts, stop))):
            pairs.append((int(order[place]), int(order[other])))
    return pairs


def _written(table: Table, number: int, targets: Tensors) -> list[Block]:
    tensor = targets[number]
    assert tensor is not None
    size = tensor.element_size()
    blocks = []
    for row in np.flatnonzero(table.target == number):
        digits = tuple(Digit(theirs * size, extent, (ours,)) for extent, ours, theirs in table.shapes[table.shape[row]])
        start = tensor.data_ptr() + int(table.target_offset[row]) * size
        blocks.append((int(table.source[row]), Comb(start, digits, (int(table.source_offset[row]),))))
    return blocks


def _without(blocks: Sequence[Block], others: Sequence[Block], first: str, second: str) -> list[Block]:
    """The blocks without the addresses that the others write, which must hold the same elements."""
    left = list(blocks)
    for source, other in others:
        remaining: list[Block] = []
        for number, comb in left:
            try:
                pairs, rest = meet(comb, other)
            except CutsDoNotNestError:
                raise LayoutError(
                    f"targets {first!r} and {second!r} share memory in a way that cannot be proved equal"
                ) from None
            if any(number != source or ours != theirs for ours, theirs in pairs):
                raise LayoutError(f"targets {first!r} and {second!r} share memory but want different elements there")
            remaining += [(number, part) for part in rest]
        left = remaining
    return left


def _rebuilt(table: Table, left: dict[int, list[Block]], targets: Tensors) -> Table:
    shapes: dict[Shape, int] = {shape: number for number, shape in enumerate(table.shapes)}
    kept = table.where(~np.isin(table.target, list(left)))
    rows = []
    for target, blocks in left.items():
        tensor = targets[target]
        assert tensor is not None
        size = tensor.element_size()
        for source, comb in blocks:
            shape = tuple((digit.extent, digit.payload[0], digit.weight // size) for digit in comb.digits)
            offset = (comb.start - tensor.data_ptr()) // size
            rows.append((shapes.setdefault(shape, len(shapes)), source, target, comb.origin[0], offset))
    added = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    columns = [np.concatenate([column, more]) for column, more in zip(kept.columns(), added, strict=True)]
    return Table(tuple(shapes), *columns)

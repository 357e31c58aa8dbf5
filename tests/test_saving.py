# SPDX-License-Identifier: Apache-2.0
"""Plans as files: they come back equal, and a file that is damaged, foreign or changed is refused."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import layout_kernels as lk

DIMS = {"e": 2, "i": ("ib", "is"), "ib": 2, "is": 3, "h": 4, "w": (3, "w1"), "w1": 4}


def rich_plan(**choices: Any) -> lk.CopyPlan:
    """A plan with every field of a Spec in use."""
    sources: dict[Any, Any] = {
        (rank, "fc1"): lk.Spec(
            "e/ep h ([gate up] i)",
            of="fc1",
            dims=DIMS,
            mesh={"ep": (2, rank)},
            declared="h (e/ep [gate up] i)",
            dtype=torch.float32,
        )
        for rank in range(2)
    }
    sources["scale"] = lk.Spec("w", of="scale", dims=DIMS)
    targets: dict[Any, Any] = {
        e: lk.Spec(
            "(ib/tp [gate up] is) h", of="fc1", dims=DIMS, at={"e": e}, mesh={"tp": slice(0, 2)}, dtype=torch.bfloat16
        )
        for e in range(2)
    }
    targets["scale"] = lk.Spec(
        "[_:(w/m 2) pad]", of="scale", dims=DIMS, mesh={"m": [2, 0, 1]}, padding={"pad": "zero", "w": "keep"}
    )
    return lk.compile(sources, targets, **choices)


def filled(plan: lk.CopyPlan) -> dict[Any, torch.Tensor]:
    def dtype(spec: lk.Spec) -> torch.dtype:
        return spec.dtype or torch.float32

    sources = {
        k: torch.arange(np.prod(s.shape()), dtype=torch.float32).reshape(s.shape()).to(dtype(s))
        for k, s in plan.sources.items()
    }
    targets = {k: torch.full(s.shape(), -1.0, dtype=dtype(s)) for k, s in plan.targets.items()}
    plan.run(sources, targets)
    return {key: tensor.float() for key, tensor in targets.items()}


def assert_same_result(one: lk.CopyPlan, two: lk.CopyPlan) -> None:
    ours, theirs = filled(one), filled(two)
    assert ours.keys() == theirs.keys()
    for key, tensor in ours.items():
        assert torch.equal(tensor, theirs[key]), key


@pytest.mark.parametrize("kind", [str, Path])
def test_round_trip(tmp_path: Path, kind: Any) -> None:
    plan = rich_plan(unused="allow", replicas="first")
    path = tmp_path / "a plan ü"
    plan.save(kind(path))
    loaded = lk.CopyPlan.load(kind(path))
    assert loaded == plan
    assert loaded.digest == plan.digest
    assert (loaded.sources, loaded.targets) == (plan.sources, plan.targets)
    assert (loaded.unused, loaded.replicas) == ("allow", "first")
    loaded.check()
    assert_same_result(loaded, plan)


def test_an_inverse_comes_back(tmp_path: Path) -> None:
    plan = lk.compile(
        {"s": lk.Spec("h", dims=DIMS)}, {"t": lk.Spec("h/m", dims=DIMS, mesh={"m": [1, 0, 3, 2, 1]})}
    ).inverse()
    plan.save(tmp_path / "plan")
    loaded = lk.CopyPlan.load(tmp_path / "plan")
    loaded.check()
    assert_same_result(loaded, plan)


def test_the_order_of_replicas_comes_back(tmp_path: Path) -> None:
    spec = lk.Spec("h", dims=DIMS)
    plan = lk.compile({"z": spec, "a": spec}, {"t": spec}, replicas="first")
    plan.save(tmp_path / "plan")
    loaded = lk.CopyPlan.load(tmp_path / "plan")
    assert list(loaded.sources) == ["z", "a"]
    loaded.check()


def test_a_plan_for_other_strides_comes_back_with_them(tmp_path: Path) -> None:
    """Or is refused; but never runs with the offsets of tensors that are not there."""
    dims = {"o": 3, "h": 2}
    spec, view = lk.Spec("o h", dims=dims), torch.arange(12.0).reshape(3, 4)[:, :2]
    target = torch.zeros(3, 2)
    fitted = lk.compile({"s": spec}, {"t": spec}).fitted({"s": view}, {"t": target})
    fitted.save(tmp_path / "plan")
    loaded = lk.CopyPlan.load(tmp_path / "plan")
    loaded.run({"s": view.contiguous()}, {"t": target})
    assert torch.equal(target, view)
    loaded.check()


def test_a_part_of_a_plan_is_not_saved_as_a_whole(tmp_path: Path) -> None:
    """It is refused, or comes back as the part that it was."""

    def save_and_check() -> None:
        rich_plan().part([(0, "fc1")]).save(tmp_path / "plan")
        lk.CopyPlan.load(tmp_path / "plan").check()

    with pytest.raises(lk.LayoutError, match="part"):
        save_and_check()


@pytest.mark.parametrize("key", [None, 1.5, ("a", None), frozenset("a"), ("a", ("b",))], ids=repr)
def test_a_key_that_cannot_be_saved_is_named(tmp_path: Path, key: Any) -> None:
    spec = lk.Spec("h", dims=DIMS)
    with pytest.raises(lk.LayoutError, match="key"):
        lk.compile({key: spec}, {"t": spec}).save(tmp_path / "plan")
    assert not (tmp_path / "plan").exists()


def saved(tmp_path: Path) -> Path:
    path = tmp_path / "plan"
    rich_plan().save(path)
    return path


def arrays_of(path: Path) -> dict[str, Any]:
    """The arrays behind the first line, which holds the format and a digest."""
    with np.load(io.BytesIO(path.read_bytes().partition(b"\n")[2]), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def write(path: Path, arrays: dict[str, Any], *, sealed: bool = False) -> None:
    """A file with these arrays; its first line is the old one, or (``sealed``) the one that a forger would make."""
    head, archive = path.read_bytes().partition(b"\n")[0], io.BytesIO()
    np.savez(archive, **arrays)
    if sealed:
        head = head.rpartition(b" ")[0] + b" " + hashlib.sha256(archive.getvalue()).hexdigest().encode()
    path.write_bytes(head + b"\n" + archive.getvalue())


def with_text(arrays: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(json.loads(arrays["plan"].tobytes()) | change, sort_keys=True)
    return arrays | {"plan": np.frombuffer(text.encode(), dtype=np.uint8)}


def test_nothing_is_pickled(tmp_path: Path) -> None:
    for name, array in arrays_of(saved(tmp_path)).items():
        assert array.dtype in (np.int64, np.uint8), name


def test_what_is_written_again_is_read_again(tmp_path: Path) -> None:
    """The helpers of this file make whole files, so that what they change is what is refused."""
    path = saved(tmp_path)
    write(path, with_text(arrays_of(path), {}), sealed=True)
    assert lk.CopyPlan.load(path) == rich_plan()


class Bomb:
    def __reduce__(self) -> Any:
        return pytest.fail, ("a pickle was run",)


@pytest.mark.parametrize("content", [b"", b"PK", b"\x93NUMPY", pickle.dumps(Bomb()), b"{}", bytes(4000)], ids=repr)
def test_a_file_that_is_no_plan(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plan"
    path.write_bytes(content)
    with pytest.raises(lk.LayoutError, match="plan"):
        lk.CopyPlan.load(path)


def test_an_object_array_is_not_unpickled(tmp_path: Path) -> None:
    path = saved(tmp_path)
    write(path, arrays_of(path) | {"plan": np.array([Bomb()], dtype=object)}, sealed=True)
    with pytest.raises(lk.LayoutError, match="plan"):
        lk.CopyPlan.load(path)


def test_a_file_that_is_missing_or_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(lk.LayoutError, match=str(path)):
            lk.CopyPlan.load(path)


def test_every_cut_and_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    """Refused, or (where a byte means nothing to the archive) the very same plan."""
    path, plan = saved(tmp_path), rich_plan()
    good = path.read_bytes()
    places = range(0, len(good), max(1, len(good) // 150))
    for damaged in [good[:place] for place in places] + [
        good[:p] + bytes([good[p] ^ 0x11]) + good[p + 1 :] for p in places
    ]:
        path.write_bytes(damaged)
        try:
            loaded = lk.CopyPlan.load(path)
        except lk.LayoutError:
            continue
        assert loaded == plan
        loaded.check()


@pytest.mark.parametrize("column", ["shape", "source", "target", "source_offset", "target_offset"])
@pytest.mark.parametrize("value", [-5, 1, 10**12])
def test_a_changed_table_is_refused(tmp_path: Path, column: str, value: int) -> None:
    path = saved(tmp_path)
    arrays = arrays_of(path)
    arrays[column][-1] += value
    write(path, arrays)
    with pytest.raises(lk.LayoutError, match="changed"):
        lk.CopyPlan.load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"unused": "allow"},
        {"sources": {}},
        {"sources": None},
        {"targets": []},
        {"shapes": [[[9, 9, 9]]]},
        {"source_keys": []},
        {"inverted": True},
    ],
    ids=repr,
)
def test_changed_specs_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = saved(tmp_path)
    write(path, with_text(arrays_of(path), change))
    with pytest.raises(lk.LayoutError, match="changed"):
        lk.CopyPlan.load(path)


@pytest.mark.parametrize("head", [b"plan 99", b"", b"PK"], ids=repr)
def test_another_format_is_named(tmp_path: Path, head: bytes) -> None:
    path = saved(tmp_path)
    path.write_bytes(head + b" " + path.read_bytes().partition(b" ")[2])
    with pytest.raises(lk.LayoutError, match="begins with"):
        lk.CopyPlan.load(path)


def forged(path: Path, change: Any) -> lk.CopyPlan:
    """A file whose digest is right although its table is not: what a forger can make."""
    arrays = arrays_of(path)
    data = json.loads(arrays["plan"].tobytes())
    change(data, arrays)
    write(path, with_text(arrays, data), sealed=True)
    return lk.CopyPlan.load(path)


FORGERIES: dict[str, Any] = {
    "an offset outside": lambda data, columns: columns["source_offset"].__setitem__(0, 10**9),
    "an offset before": lambda data, columns: columns["target_offset"].__setitem__(0, -1),
    "a tensor that is not there": lambda data, columns: columns["target"].__setitem__(0, 99),
    "a target of -1": lambda data, columns: columns["target"].__setitem__(0, -1),
    "a source of -2": lambda data, columns: columns["source"].__setitem__(0, -2),
    "a shape that is not there": lambda data, columns: columns["shape"].__setitem__(0, 99),
    "a shape of -1": lambda data, columns: columns["shape"].__setitem__(0, -1),
    "a step backwards": lambda data, columns: data["shapes"].__setitem__(0, [[3, 1, -1]]),
    "a negative extent": lambda data, columns: data["shapes"].__setitem__(0, [[-3, 1, 1]]),
    "an extent too far": lambda data, columns: data["shapes"].__setitem__(0, [[10**6, 1, 1]]),
    "an extent that is no number": lambda data, columns: data["shapes"].__setitem__(0, [["3", 1, 1]]),
    "a digit of two": lambda data, columns: data["shapes"].__setitem__(0, [[3, 1]]),
    "columns of other lengths": lambda data, columns: columns.__setitem__("target", columns["target"][:-1]),
    "columns of other numbers": lambda data, columns: columns.__setitem__("shape", columns["shape"].astype(np.float64)),
    "a key that has no Spec": lambda data, columns: data["source_keys"].__setitem__(0, "stranger"),
}


@pytest.mark.parametrize("change", FORGERIES.values(), ids=list(FORGERIES))
def test_a_forged_table_reaches_no_foreign_memory(tmp_path: Path, change: Any) -> None:
    """Loading, checking or at the latest binding refuses it, before a byte moves."""
    path = saved(tmp_path)
    with pytest.raises(lk.LayoutError):
        filled(forged(path, change))


def test_check_refuses_a_table_that_its_specs_do_not_say(tmp_path: Path) -> None:
    path = saved(tmp_path)
    loaded = forged(
        path, lambda data, columns: columns["source_offset"].__setitem__(0, int(columns["source_offset"][0]) ^ 1)
    )
    with pytest.raises(lk.LayoutError, match="Specs"):
        loaded.check()

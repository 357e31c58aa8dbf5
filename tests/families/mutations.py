# SPDX-License-Identifier: Apache-2.0
"""Every line of the tables changed on purpose: one of the judges must notice.

    python tests/families/mutations.py [--share 3/40]

A mutation drops a shard, swaps two tags, two segments or two axes in one layout of one cell. It survives if no judge
fails although it changes which number lands where. With transformers installed its classes judge too; the columns that
nobody else judges are left out elsewhere.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "peers")]

import torch  # noqa: E402
from recipes import Options, Rank  # noqa: E402
from test_family_engines import RECIPES, judge_decay  # noqa: E402
from test_family_engines import judge as judge_engine  # noqa: E402
from test_family_recipes import (  # noqa: E402
    SPARSE,
    STAGED,
    STORED,
    assert_same,
    carried,
    judge,
    judge_stages,
    published,
    ranks,
)
from tiny_configs import FAMILIES, config_of  # noqa: E402

import layout_kernels as lk  # noqa: E402
from layout_kernels.families.models import MODELS  # noqa: E402
from layout_kernels.families.table import Row  # noqa: E402
from layout_kernels.notation import Concat, Layout, Node, Product, Select, parse  # noqa: E402

PEERS = importlib.util.find_spec("transformers") is not None
EXPERT_RANKS = [Rank((2, n % 2), (4, n), (1, 0)) for n in range(4)]
Case = Callable[[], None]
Cell = tuple[int, str, int]  # identity of the row, column, number of the line


@dataclasses.dataclass(frozen=True)
class Mutation:
    row: Row
    column: str
    line: int
    layout: str

    @property
    def cell(self) -> Cell:
        return id(self.row), self.column, self.line

    def __str__(self) -> str:
        before = self.row.columns[self.column][self.line].layout
        return f"{self.row.of} [{self.column}]: {before} -> {self.layout}"


def neighbours(items: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The items with two neighbours exchanged."""
    for at in range(len(items) - 1):
        yield (*items[:at], items[at + 1], items[at], *items[at + 2 :])


def variants(node: Node) -> Iterator[Node]:
    """The node with one thing changed in it."""
    match node:
        case Select(axis, mesh):
            yield axis
            yield from (Select(other, mesh) for other in variants(axis))
        case Product(axes):
            yield from map(Product, neighbours(axes))
            for at, axis in enumerate(axes):
                yield from (Product((*axes[:at], other, *axes[at + 1 :])) for other in variants(axis))
        case Concat(segments):
            yield from map(Concat, neighbours(segments))
            tags = tuple(tag for tag, _ in segments)
            for other_tags in neighbours(tags):
                yield Concat(tuple(zip(other_tags, (axis for _, axis in segments), strict=True)))
            for at, (tag, axis) in enumerate(segments):
                yield from (Concat((*segments[:at], (tag, x), *segments[at + 1 :])) for x in variants(axis))


def mutants(layout: Layout) -> set[str]:
    dimensions = layout.dimensions
    found = {" ".join(map(str, order)) for order in neighbours(dimensions)}
    for at, axis in enumerate(dimensions):
        found |= {" ".join(map(str, (*dimensions[:at], x, *dimensions[at + 1 :]))) for x in variants(axis)}
    return {text for text in found if parse(text) != layout}


def all_mutations() -> list[Mutation]:
    blocks = {id(block): block for model in MODELS.values() for block in (*model.model, *model.layer, *model.mtp)}
    rows = {id(row): row for block in blocks.values() for row in block.rows}
    return [
        Mutation(row, column, line, text)
        for row in rows.values()
        for column, cells in row.columns.items()
        for line, cell in enumerate(cells)
        for text in sorted(mutants(cell.layout))
        if not changes_nothing(Mutation(row, column, line, text))
    ]


def cases(names: Collection[str]) -> Iterator[Case]:
    """Judges of some families, cheap ones first."""
    large = {"hidden_size": 128, "moe_intermediate_size": 128, "intermediate_size": 128, "num_key_value_heads": 4}
    options = [(Options(), ranks(2)), (Options("te", "te", "fused", "replicated"), ranks(4, 2, 2))]
    options.append((Options("te", "te", "fused", "fused-replicated", indexer="rope-first", glu_interleave=2), ranks(2)))
    options.append((Options(down="fused-sharded", up="mm-split", shared_glu_interleave=4, glu_interleave=4), ranks(2)))
    options.append((Options(down="mindspeed"), ranks(2)))
    for how, mesh in options:
        for name in names:
            if not (how.glu_interleave and name == "nemotron_h"):
                yield lambda name=name, how=how, mesh=mesh: judge(name, how, mesh)
    for name in (name for name in STAGED if name in names):
        yield lambda name=name: judge_stages(name)
    for name in names:
        yield lambda name=name: judge_engine(name, config_of(name), "vllm", "triton", ranks(1))
        for system in ("vllm", "sglang"):
            yield lambda name=name, system=system: judge_engine(name, config_of(name), system, "triton", ranks(2))
        if name in SPARSE:
            yield lambda name=name: judge_engine(name, config_of(name), "vllm", "triton", EXPERT_RANKS)
        if name == "nemotron_h":
            yield lambda: judge_decay(2)
        yield lambda name=name: copies(name)
        if PEERS:
            yield lambda name=name: live_modules(name)
    stored = ["qwen3_moe", "llama4_text", "nemotron_h"]
    for name in (name for name in stored if name in names):
        for storage in STORED:
            for mesh in (ranks(1, 2, 2), ranks(2, 4, 1)):
                yield lambda name=name, storage=storage, mesh=mesh: judge(name, Options(experts=storage), mesh)
        if name != "nemotron_h":
            yield lambda name=name: judge(name, Options(experts="stacked", glu_interleave=4), ranks(2, 2, 2))
    for name in (name for name in (*stored, "gpt_oss") if name in names):
        for system, kernel in RECIPES:
            if name in ("qwen3_moe", "llama4_text") or kernel == "triton" or (name, kernel) == ("nemotron_h", "xpu"):
                config = {**config_of(name), **large}
                for mesh in (ranks(2), EXPERT_RANKS):
                    yield lambda n=name, c=config, s=system, k=kernel, m=mesh: judge_engine(n, c, s, k, m)


def copies(name: str) -> None:
    """Checkpoints that repeat the model's embedding and head beside a draft."""
    family = lk.family(config_of(name))
    hf, checkpoint = published(name)
    full = {key: spec.replace(dtype=None) for key, spec in family.specs("hf", mtp="full").items()}
    head = checkpoint.get("lm_head.weight", checkpoint.get("model.embed_tokens.weight"))
    repeated = {"embed_tokens.weight": checkpoint.get("model.embed_tokens.weight"), "shared_head.head.weight": head}
    expected = {key: checkpoint[key] if key in hf else repeated[key.split(".", 3)[3]] for key in full}
    assert_same(carried(hf, checkpoint, full), expected)


def live_modules(name: str) -> None:
    """transformers' own modules, filled with unique numbers, against what they save."""
    from test_specs_equal_transformers import saved
    from transformers_configs import TINY, build

    model_type = name.split(" ")[0]
    if model_type not in TINY:
        return
    model = build(model_type)
    with torch.no_grad():
        for number, tensor in enumerate(model.parameters()):
            tensor.copy_(torch.arange(tensor.numel()).reshape(tensor.shape) + number * 2**14)
    live = {key: tensor.detach() for key, tensor in model.state_dict().items()}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        checkpoint, family = saved(Path(folder)), lk.family(folder)
    specs = {key: spec.replace(dtype=None) for key, spec in family.specs("transformers").items()}
    hf = {key: spec.replace(dtype=None) for key, spec in family.specs("hf", mtp="none").items()}
    out = {key: torch.empty(spec.shape()) for key, spec in specs.items()}
    lk.compile(hf, specs).run(checkpoint, out)
    assert_same(out, live)


def seen_by(names: Collection[str]) -> dict[Cell, list[Case]]:
    """For each cell the judges that read it."""
    found: dict[Cell, list[Case]] = {}
    used: set[Cell] = set()
    plain = Row.cells

    def recorded(row: Row, path: Any) -> Any:
        cells = plain(row, path)
        column = next(column for column in path if column in row.columns)
        used.update((id(row), column, line) for line in range(len(cells)))
        return cells

    Row.cells = recorded  # type: ignore[method-assign]
    try:
        for case in cases(names):
            used.clear()
            case()
            for cell in used:
                found.setdefault(cell, []).append(case)
    finally:
        Row.cells = plain  # type: ignore[method-assign]
    return found


def changes_nothing(mutation: Mutation) -> bool:
    """Whether the same number lands at every place: (i [gate]) and ([gate] i), where gate is one position wide."""
    cell = mutation.row.columns[mutation.column][mutation.line]
    before = cell.layout
    dims = {axis: 2 * number for number, axis in enumerate(sorted(before.axes), 2)}
    dims["t"] = 2  # as many as there are ranks
    both = [before, parse(mutation.layout)]
    one, two = (lk.Spec(x, dims=dims, mesh={mesh: (2, 1) for mesh in before.meshes}) for x in both)
    if one.shape() != two.shape() and cell.declared is None:  # else the shape is that of the bytes' description alone
        return False
    numbers = torch.arange(torch.Size(one.shape()).numel()).reshape(one.shape())
    out = {"x": torch.full(two.shape(), -1)}
    try:
        lk.compile({"x": one}, {"x": two}).run({"x": numbers}, out)
    except lk.LayoutError:
        return False
    return torch.equal(numbers.flatten(), out["x"].flatten())


def survives(mutation: Mutation, judges: list[Case]) -> bool:
    columns: Any = mutation.row.columns
    before = columns[mutation.column]
    after = list(before)
    after[mutation.line] = dataclasses.replace(before[mutation.line], layout=parse(mutation.layout))
    columns[mutation.column] = tuple(after)
    try:
        for judge_case in judges:
            judge_case()
    except (AssertionError, lk.LayoutError, RuntimeError, KeyError):
        return False
    finally:
        columns[mutation.column] = before
    return True


def run(
    share: tuple[int, int], names: Collection[str] = FAMILIES, say: Callable[[str], None] = print
) -> list[Mutation]:
    """The survivors among a share of all mutations of the cells that some families read."""
    judges = seen_by(names)
    everything = all_mutations()
    chosen = [mutation for mutation in everything if mutation.cell in judges][share[0] :: share[1]]
    started = time.monotonic()
    survivors = []
    for number, mutation in enumerate(chosen, 1):
        if number % 100 == 0:
            say(f"{number} of {len(chosen)}, {time.monotonic() - started:.0f} s")
        if survives(mutation, judges[mutation.cell]):
            survivors.append(mutation)
    if survivors and len(names) < len(FAMILIES):  # what one family's sizes do not show, another's may
        judges = seen_by(FAMILIES)
        survivors = [mutation for mutation in survivors if survives(mutation, judges[mutation.cell])]
    for mutation in survivors:
        say(f"SURVIVED {mutation}")
    say(f"{len(chosen)} mutations, {len(survivors)} survived, {time.monotonic() - started:.0f} s")
    if len(names) == len(FAMILIES):
        without = sorted({f"{m.row.of} [{m.column}]" for m in everything if m.cell not in judges})
        say(f"cells that no judge here reads: {without}")
    return survivors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", default="0/1", help="K/N: every N-th mutation, from the K-th on")
    number, of = map(int, parser.parse_args().share.split("/"))
    sys.exit(bool(run((number, of))))


if __name__ == "__main__":
    main()

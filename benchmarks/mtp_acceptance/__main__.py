# SPDX-License-Identifier: Apache-2.0
"""``python -m benchmarks.mtp_acceptance``: trains, syncs, measures; prints the table, writes it and the figure."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from . import environments, processes, results, show
from .settings import Settings

HERE = Path(__file__).parent
DEFAULTS = Settings()


def main(
    model: Annotated[str, typer.Option(help="glm-4.5-like or glm-4.7-flash-like.")] = DEFAULTS.model,
    experts: Annotated[
        str, typer.Option(help="How the trainer holds experts: grouped (as MindSpeed does) or sequential.")
    ] = DEFAULTS.experts,
    language: Annotated[str, typer.Option(help="easy or hard.")] = DEFAULTS.language,
    topology: Annotated[str, typer.Option(help="The trainer's two processes: tp2-ep2-sp or ep2.")] = DEFAULTS.topology,
    rounds: Annotated[int, typer.Option(help="How often it is synced.")] = DEFAULTS.rounds,
    steps: Annotated[int, typer.Option(help="Steps of training before each sync.")] = DEFAULTS.steps,
    seed: Annotated[int, typer.Option()] = DEFAULTS.seed,
    trainer_python: Annotated[
        str | None, typer.Option(help="Python with tests/peers/requirements.txt [LAYOUT_KERNELS_PEERS_PYTHON].")
    ] = None,
    engine_python: Annotated[
        str | None, typer.Option(help="Python with tests/peers/requirements-vllm.txt [LAYOUT_KERNELS_VLLM_PYTHON].")
    ] = None,
    make: Annotated[Path | None, typer.Option(help="Make both environments in this folder, or use them.")] = None,
    output: Annotated[Path, typer.Option(help="Folder for results.json, figure-light.svg and figure-dark.svg.")] = HERE,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Acceptance of a trained MTP draft in real vLLM, after right and wrong ways to move the weights."""
    console = Console(stderr=json_, width=None if Console().is_terminal else 150)
    pythons = environments.named(trainer_python, engine_python)
    if make:
        pythons = environments.make(make, console.print)
    if problems := environments.missing(pythons):
        problems.append("--make FOLDER makes both environments")
        console.print("\n".join(problems), style="red", markup=False)
        raise typer.Exit(2)
    settings = Settings(model, experts, language, topology, rounds, steps, seed)
    watch = show.Watch(console)
    with tempfile.TemporaryDirectory() as folder, watch.progress:
        processes.run(settings, Path(folder), pythons, watch)
        rows = results.read(Path(folder))
    output.mkdir(parents=True, exist_ok=True)
    written = {"settings": asdict(settings), "rows": results.to_json(rows)}
    (output / "results.json").write_text(json.dumps(written, indent=1) + "\n")
    if json_:
        typer.echo(json.dumps(written, indent=1))
    else:
        console.print(show.table(rows))
    _draw(rows, output, console)
    raise typer.Exit(0 if _good(rows) else 1)


def _draw(rows: list[results.Row], output: Path, console: Console) -> None:
    try:
        from . import figure

        for name, theme in figure.THEMES.items():
            figure.draw(rows, output / f"figure-{name}.svg", theme)
    except ModuleNotFoundError as error:
        console.print(f"no figure: {error}", style="yellow", markup=False)


def _good(rows: list[results.Row]) -> bool:
    """What the table is to show: after our sync the engine has the bits of the fresh one, and the trainer's logits."""
    ours = [row for row in rows if row.scenario == "ours"]
    near = all(max(row.target_difference, row.draft_difference) < 1e-4 for row in ours)
    return near and all(row.identical and row.probes_identical and row.greedy_equal == 1 for row in ours)


if __name__ == "__main__":
    typer.run(main)

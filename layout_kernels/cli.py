# SPDX-License-Identifier: Apache-2.0
"""The command line. Every command takes ``--json``, and exits non-zero when what it checked does not hold."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from .backends import backends as list_backends
from .errors import LayoutError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
console = Console()

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Model = Annotated[str, typer.Option(help="A published model, such as glm-4.7-flash or qwen3-30b-a3b.")]
Config = Annotated[str | None, typer.Option(help="A Hugging Face config.json (or its folder) instead of --model.")]
Train = Annotated[str, typer.Option(help="The trainers' mesh: tp=N,ep=N,etp=N,pp=N.")]
Experts = Annotated[
    str, typer.Option(help="How trainers hold experts: grouped, te, sequential, stacked, stacked-transposed.")
]
Rollout = Annotated[str, typer.Option(help="The rollouts' mesh: tp=N,ep=N.")]
Engine = Annotated[str, typer.Option(help="The rollouts' layout: vllm-ascend, vllm, vllm-cpu.")]


def main() -> None:
    """The entry point: what is refused is said in one sentence, without a traceback."""
    try:
        app()
    except LayoutError as error:
        Console(stderr=True).print(f"layout-kernels: {error}", style="red", markup=False)
        raise SystemExit(2) from None


@app.callback()
def _about() -> None:
    """Move weights between training and inference layouts."""


@app.command()
def demo(
    model: Model = "glm-4.7-flash",
    config: Config = None,
    scale: Annotated[float, typer.Option(help="Shrink the published model to about 1/scale.")] = 120,
    steps: Annotated[int, typer.Option(help="How many syncs, with weights changed in between.")] = 3,
    train: Train = "tp=2,ep=2",
    experts: Experts = "grouped",
    rollout: Rollout = "tp=2",
    engine: Engine = "vllm-ascend",
    transport: Annotated[str, typer.Option(help="How buckets travel: broadcast.")] = "broadcast",
    device: Annotated[str, typer.Option(help="Where the weights lie: cpu, cuda, npu.")] = "cpu",
    dump: Annotated[
        str | None, typer.Option(help="Write every rank's weights of every step below this folder.")
    ] = None,
    json_: Json = False,
) -> None:
    """The main job on one machine: trainers and rollouts as processes, several syncs, every byte verified."""
    from .demo.run import run
    from .demo.settings import settings
    from .demo.show import Watch, heading, show

    chosen = settings(
        model=model, config=config, scale=scale, steps=steps, train=train, experts=experts, rollout=rollout,
        engine=engine, transport=transport, device=device, dump=dump,
    )  # fmt: skip
    if json_:
        outcome = run(chosen, lambda event: None)
        _print_json(outcome.to_json())
    else:
        console.print(heading(chosen))
        watch = Watch(chosen, console)
        with watch.progress:
            outcome = run(chosen, watch)
        show(outcome, console)
    raise typer.Exit(0 if outcome.good else 1)


@app.command()
def plan(
    model: Model = "glm-4.7-flash",
    config: Config = None,
    scale: Annotated[float, typer.Option(help="Shrink the published model to about 1/scale.")] = 1,
    train: Train = "tp=2,ep=2",
    experts: Experts = "grouped",
    rollout: Rollout = "tp=2",
    engine: Engine = "vllm-ascend",
    bucket_bytes: Annotated[int | None, typer.Option(help="The bound on a bucket, in bytes.")] = None,
    explain: Annotated[
        int | None, typer.Option(help="Also tell the copy that fills this rollout, block by block.")
    ] = None,
    json_: Json = False,
) -> None:
    """What a sync would move, without moving it: blocks, bytes, buckets, who sends how much to whom."""
    from .demo.outlook import outlook, rollout_plan
    from .demo.settings import settings
    from .demo.show import heading, show_outlook

    chosen = settings(
        model=model, config=config, scale=scale, steps=1, train=train, experts=experts, rollout=rollout,
        engine=engine, transport="broadcast", device="cpu", dump=None,
    )  # fmt: skip
    found = outlook(chosen, bucket_bytes)
    if json_:
        _print_json(found)
        return
    console.print(heading(chosen))
    show_outlook(found, console)
    if explain is not None:
        console.print(rollout_plan(chosen, explain).explain(), markup=False, highlight=False, soft_wrap=True)


@app.command()
def backends(json_: Json = False) -> None:
    """What runs here, and why the rest does not."""
    said = list_backends()
    if json_:
        _print_json(said)
        return
    table = Table("backend", "here")
    for name, about in said.items():
        table.add_row(name, about)
    console.print(table)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))

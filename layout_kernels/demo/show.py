# SPDX-License-Identifier: Apache-2.0
"""What people see of a demo: progress while it runs, a table at its end."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from .run import Event, Outcome
from .settings import Settings, said

STAGES = ("pack", "wire", "scatter")


class Watch:
    """A bar for every sync; hears the events of `run`."""

    def __init__(self, settings: Settings, console: Console) -> None:
        self.settings = settings
        self.progress = Progress(
            TextColumn("{task.description:28}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            console=console,
        )
        self.tasks: dict[int, TaskID] = {}
        self.ready = self.progress.add_task("making weights", total=settings.trainers + settings.rollouts)
        self.fractions: dict[tuple[int, int], float] = {}

    def __call__(self, event: Event) -> None:
        """One event."""
        if event["event"] == "ready":
            self.progress.advance(self.ready)
        elif event["event"] in ("progress", "report") and event["role"] == "rollout":
            step = event["step"]
            if step not in self.tasks:
                self.tasks[step] = self.progress.add_task(f"sync {step}", total=1.0)
            self.fractions[step, event["rank"]] = event.get("fraction", 1.0)
            slowest = min(self.fractions.get((step, rank), 0.0) for rank in range(self.settings.rollouts))
            self.progress.update(self.tasks[step], completed=slowest)
        elif event["event"] == "verified" and not event["different"]:
            self.progress.update(self.tasks[event["step"]], description=f"sync {event['step']}, every byte verified")


def heading(settings: Settings) -> str:
    """One line that says what runs."""
    return (
        f"{settings.title}: {settings.trainers} trainers ({said(settings.train)}, {settings.experts} experts) -> "
        f"{settings.rollouts} rollouts ({settings.engine}, {said(settings.rollout)})"
    )


def show(outcome: Outcome, console: Console) -> None:
    """The table of a demo, and what went wrong if anything did."""
    table = Table()
    columns = ["sync", "MB", "secs", *STAGES, "GB/s", "plain", "verified"]
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for step in outcome.steps():
        table.add_row(*_cells(step))
    console.print(table)
    console.print(
        "MB: what each rollout received. pack, wire, scatter: seconds of the slowest rank; the first sync also plans. "
        "plain: GB/s of a plain broadcast of the same bytes between the same processes. "
        "verified: tensors of all rollouts in which every byte is what the Specs say.",
        style="dim",
    )
    for failure in outcome.failures:
        console.print(failure, style="red", markup=False)
    for step in outcome.steps():
        if step["different"]:
            console.print(
                f"sync {step['step']}: wrong bytes in {', '.join(step['different'][:8])}", style="red", markup=False
            )


def _cells(step: dict[str, Any]) -> list[str]:
    plain = step["plain_broadcast_gigabytes_per_second"]
    return [
        str(step["step"]),
        f"{step['nbytes'] / 1e6:,.0f}",
        f"{step['seconds']:.3f}",
        *(f"{step['stages'].get(stage, 0.0):.3f}" for stage in STAGES),
        f"{step['gigabytes_per_second']:.2f}",
        "-" if plain is None else f"{plain:.2f}",
        f"{step['tensors_verified']} of {step['tensors']}",
    ]


def show_outlook(found: Event, console: Console) -> None:
    """Tables of who would hold, send and receive how much."""
    buckets, tensors = found["buckets"], found["tensors"]
    console.print(
        f"{tensors['trainers']:,} tensors -> {tensors['rollouts']:,} tensors, {found['blocks']:,} blocks; "
        f"{found['wire_bytes'] / 1e9:,.2f} GB on the wire in {buckets['count']:,} buckets of at most "
        f"{buckets['bytes'] / 1e6:,.0f} MB"
    )
    for role, columns in (
        ("trainer", ("held_bytes", "sent_bytes", "buckets")),
        ("rollout", ("written_bytes", "blocks")),
    ):
        table = Table(role, "tensors", *(column.replace("_bytes", ", GB") for column in columns))
        for row in found[f"{role}s"]:
            amounts = (f"{row[c] / 1e9:,.2f}" if c.endswith("bytes") else f"{row[c]:,}" for c in columns)
            table.add_row(str(row["rank"]), f"{row['tensors']:,}", *amounts)
        console.print(table)

# SPDX-License-Identifier: Apache-2.0
"""Progress while it runs, and the table at the end."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from .results import Row, by_scenario
from .scenarios import SCENARIOS


class Watch:
    """A bar for the training and one for the measurements; call it with every event."""

    def __init__(self, console: Console) -> None:
        columns = TextColumn("{task.description:60}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        self.progress = Progress(*columns, console=console)
        self._bars: dict[str, TaskID] = {
            "trained": self.progress.add_task("trainers start", total=None),
            "measured": self.progress.add_task("engine starts", total=None),
        }

    def __call__(self, process: str, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "starts":
            role = "trained" if process.startswith("trainer") else "measured"
            self.progress.update(self._bars[role], description=f"{process} is ready")
        elif process != "trainer1":
            said = "training steps"
            if kind == "measured":
                said = f"round {event['round'] + 1}: {SCENARIOS[event['scenario']].title}"
            done = event["step"] if kind == "trained" else event["done"]
            self.progress.update(self._bars[kind], description=said, completed=done, total=event["of"])


def table(rows: list[Row]) -> Table:
    """The last round, with the acceptance of every round."""
    shown = Table(
        "weights", "acceptance by round, %", "greedy tokens", "target logits", "draft logits", "tokens/s", "s"
    )
    shown.caption = (
        "Acceptance after every round, the rest after the last. Greedy tokens: share equal to the fresh engine's. "
        "Logits: largest difference from the trainer's. s: the sync, the reload, or the start of the fresh engine."
    )
    for rounds in by_scenario(rows).values():
        last = rounds[-1]
        shown.add_row(
            last.title,
            " ".join(f"{100 * row.acceptance:.0f}" for row in rounds),
            f"{last.greedy_equal:.1%}",
            difference(last.target_difference),
            difference(last.draft_difference),
            f"{last.tokens_per_second:.0f}",
            f"{last.seconds:.2f}" if last.seconds else "",
            style="bold" if last.scenario == "ours" else None,
        )
    return shown


def difference(value: float) -> str:
    """``0.0000061`` -> ``"6e-06"``; ``4.52`` -> ``"4.5"``."""
    return f"{value:.0e}" if value < 1e-3 else f"{value:.2g}"

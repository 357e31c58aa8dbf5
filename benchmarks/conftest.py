# SPDX-License-Identifier: Apache-2.0
"""After the timings: one table of ratios, each within the same run."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console
from rich.markup import escape
from rich.table import Table


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    session = getattr(config, "_benchmarksession", None)
    timed = [bench for bench in getattr(session, "benchmarks", []) if bench.stats.rounds]
    groups: dict[str, dict[str, Any]] = {}
    for bench in timed:
        if "who" in bench.extra_info:
            groups.setdefault(bench.group, {})[bench.extra_info["who"]] = bench
    if not groups:
        return
    table = Table("work", "ours, ms", "GB/s", "of memcpy", "of streaming copy", "times torch", title="medians, one run")
    for group, by in groups.items():
        median = {who: bench.stats.median for who, bench in by.items()}
        nbytes = by["ours"].extra_info["nbytes"]
        table.add_row(
            escape(group),
            f"{median['ours'] * 1e3:.1f}",
            f"{nbytes / median['ours'] / 1e9:.1f}",
            f"{median['memcpy'] / median['ours']:.2f}",
            f"{median['streaming'] / median['ours']:.2f}",
            f"{median['torch'] / median['ours']:.1f}",
        )
    Console(file=terminalreporter._tw._file, width=120).print(table)

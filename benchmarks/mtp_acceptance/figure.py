# SPDX-License-Identifier: Apache-2.0
"""The figure: a row for each way of moving the weights, a panel for each measure, a dot for each round."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .results import Row, by_scenario


@dataclass(frozen=True)
class Theme:
    """Colours on one background; the first round is drawn in the first of the two, the last in the second."""

    text: str
    grid: str
    right: tuple[str, str]
    wrong: tuple[str, str]


THEMES = {
    "light": Theme("#1f2328", "#d8dee4", ("#a7d8b5", "#116329"), ("#f5c3b8", "#b02a12")),
    "dark": Theme("#e6edf3", "#3d444d", ("#1d4a2b", "#56d364"), ("#5c2a20", "#ff8e72")),
}
RIGHT = ("fresh", "ours")
PANELS = (
    ("acceptance", "drafts accepted", (-0.04, 1.04), "linear"),
    ("greedy_equal", "greedy tokens equal\nto the fresh engine's", (-0.04, 1.04), "linear"),
    ("target_difference", "target logits off\nthe trainer's by", (1e-7, 1e2), "log"),
    ("draft_difference", "draft logits off\nthe trainer's by", (1e-7, 1e2), "log"),
)


def draw(rows: list[Row], path: Path, theme: Theme) -> None:
    """One picture, without a background of its own."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    found = by_scenario(rows)
    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "mtp",
        "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    }
    with pyplot.rc_context(settings):
        figure, axes = pyplot.subplots(1, len(PANELS), figsize=(9.6, 0.27 * len(found) + 1.1), sharey=True)
        for panel, (field, title, limits, scale) in zip(axes, PANELS, strict=True):
            panel.set_title(title, fontsize=9, color=theme.text)
            panel.set_xscale(scale)
            panel.set_xlim(*limits)
            _dots(panel, found, field, theme)
            _dress(panel, theme, scale)
        _names(axes[0], found, theme)
        figure.tight_layout(w_pad=1.6)
        figure.savefig(path, transparent=True, metadata={"Date": None})
        pyplot.close(figure)


def _dots(panel: Any, found: dict[str, list[Row]], field: str, theme: Theme) -> None:
    """One collection for each round and colour, which keeps the file small."""
    from matplotlib.colors import LinearSegmentedColormap

    for ends, among in ((theme.right, True), (theme.wrong, False)):
        shades = LinearSegmentedColormap.from_list("rounds", ends)
        places = [place for place, scenario in enumerate(found) if (scenario in RIGHT) == among]
        chosen = [rounds for scenario, rounds in found.items() if (scenario in RIGHT) == among]
        last = max(map(len, chosen), default=0) - 1
        for number in range(last + 1):
            values = [getattr(rounds[number], field) for rounds in chosen]
            shade, size = shades(number / max(1, last)), 34 if number == last else 16
            panel.scatter(values, places, color=shade, s=size, zorder=3, linewidths=0, clip_on=False)


def _dress(panel: Any, theme: Theme, scale: str) -> None:
    from matplotlib.ticker import PercentFormatter

    panel.grid(axis="x", color=theme.grid, linewidth=0.6)
    panel.set_axisbelow(True)
    panel.tick_params(length=0, colors=theme.text, labelsize=8)
    if scale == "linear":
        panel.set_xticks([0, 0.5, 1])
        panel.xaxis.set_major_formatter(PercentFormatter(1))
    else:
        panel.set_xticks([1e-6, 1e-4, 1e-2, 1])
        panel.minorticks_off()
    for side in panel.spines.values():
        side.set_visible(False)


def _names(panel: Any, found: dict[str, list[Row]], theme: Theme) -> None:
    panel.set_yticks(range(len(found)), [rounds[0].title for rounds in found.values()], color=theme.text, fontsize=9)
    panel.invert_yaxis()
    for label, scenario in zip(panel.get_yticklabels(), found, strict=True):
        if scenario == "ours":
            label.set_fontweight("bold")

# SPDX-License-Identifier: Apache-2.0
"""A number that changes with the commit: the share of long lists of cases that runs."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path


@cache
def turn() -> int:
    """The commit's number; 0 outside a repository."""
    told = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True)
    return int(told.stdout.strip() or "0", 16)

# SPDX-License-Identifier: Apache-2.0
"""The entry point of the processes that `processes.run` starts."""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path

from .settings import Settings


def main() -> None:
    """Arguments: the checkout, the role, the rank, the settings, the folder."""
    faulthandler.enable()  # who is ended for its silence says where it was
    _, role, rank, settings, folder = sys.argv[1:]
    given = Settings.from_json(settings)
    if role == "trainer":
        from . import trainer

        trainer.main(given, int(rank), Path(folder))
    elif role == "engine":
        from . import engine

        engine.main(given, Path(folder))
    else:
        from . import refused

        refused.main(given, Path(folder))
    sys.stdout.flush()
    os._exit(0)  # a process group that lost a member may wait at exit

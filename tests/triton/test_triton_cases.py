# SPDX-License-Identifier: Apache-2.0
"""The shared cases in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import test_cases
import torch
from shadow import CASES, Case


@pytest.mark.parametrize("place", test_cases.PLACES, ids=["aligned", "misaligned", "strided"])
@pytest.mark.parametrize("dtype", test_cases.DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case, dtype: torch.dtype, place: dict[str, Any]) -> None:
    test_cases.test_case(case, "triton", dtype, place)

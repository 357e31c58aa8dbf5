# SPDX-License-Identifier: Apache-2.0
"""A share of the mutations of the tables, another with every commit; `mutations.py` runs them all."""

from __future__ import annotations

from mutations import Mutation, mutants, run
from share import turn
from tiny_configs import FAMILIES

from layout_kernels.notation import parse

SHARES = 8


def test_what_is_changed() -> None:
    assert mutants(parse("([gate up] i/tp) h")) == {
        "h ([gate up] i/tp)",
        "(i/tp [gate up]) h",
        "([up gate] i/tp) h",
        "([gate up] i) h",
    }


def test_a_share_of_the_mutations() -> None:
    number = turn()
    name = sorted(FAMILIES)[number % len(FAMILIES)]
    survivors: list[Mutation] = run((number // len(FAMILIES) % SHARES, SHARES), [name])
    assert not survivors, f"judges of {name} do not notice: {[str(mutation) for mutation in survivors]}"

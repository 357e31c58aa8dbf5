# SPDX-License-Identifier: Apache-2.0
"""A made-up language that a small model and its draft learn in a few minutes.

A sentence begins with the name of its grammar and a random token; then x' = a x + c modulo a prime, where a and c are
given by the grammar and by the parity of the token before.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

PRIME = 251
NOISE = 0.02  # share of tokens that obey no rule


@dataclass(frozen=True)
class Language:
    """As many grammars as it has; more of them leave less room in the model."""

    grammars: int

    def sentences(self, count: int, length: int, seed: int, noise: float = NOISE) -> torch.Tensor:
        """[count, length] tokens, below `PRIME` + grammars."""
        rules = torch.Generator().manual_seed(5)
        factor = torch.randint(1, PRIME, (self.grammars, 2), generator=rules)
        shift = torch.randint(0, PRIME, (self.grammars, 2), generator=rules)
        drawn = torch.Generator().manual_seed(seed)
        grammar = torch.randint(0, self.grammars, (count,), generator=drawn)
        tokens = [PRIME + grammar, torch.randint(0, PRIME, (count,), generator=drawn)]
        while len(tokens) < length:
            parity = tokens[-2] % 2
            following = (factor[grammar, parity] * tokens[-1] + shift[grammar, parity]) % PRIME
            wrong = torch.rand(count, generator=drawn) < noise
            tokens.append(torch.where(wrong, torch.randint(0, PRIME, (count,), generator=drawn), following))
        return torch.stack(tokens, dim=1)


LANGUAGES = {"easy": Language(4), "hard": Language(24)}


def prompts(language: str, count: int, length: int, seed: int) -> torch.Tensor:
    """[count, length] beginnings of sentences without noise, which no training step has seen."""
    return LANGUAGES[language].sentences(count, length, 1_000_003 + seed, noise=0.0)

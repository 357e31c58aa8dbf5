# SPDX-License-Identifier: Apache-2.0
"""The one exception of the library, and the helper that finds the nearest name for its messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LayoutError(ValueError):
    """Anything that is refused: a text that does not parse, a plan that cannot be proved, a tensor that does not fit.

    The message says what was asked, what was seen, the rule that was broken and the numbers, and names the tensor,
    the rank and the nearest name that would fit. When it is raised while planning or binding, nothing was written.
    """


def nearest(name: object, known: Iterable[object]) -> str:
    """A clause such as ``"; the nearest is 'gate'"``, or nothing where no known name is close."""
    close = difflib.get_close_matches(str(name), [str(other) for other in known], n=1, cutoff=0.5)
    return f"; the nearest is {close[0]!r}" if close else ""

# SPDX-License-Identifier: Apache-2.0
"""Models as tables: ``family(config).specs(system, mesh=...)`` says what each rank of each system holds.

`blocks/` is the table of layouts, `models.py` the list of families, `systems.py` the list of systems.
"""

from .adapters import adapters
from .family import Family, family
from .judged import describe, markdown
from .published import published

__all__ = ["Family", "adapters", "describe", "family", "markdown", "published"]

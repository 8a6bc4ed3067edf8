"""Many variants of many models: ``rtlab.grid`` makes them, ``rtlab.Store`` runs them and has their results."""

from __future__ import annotations

from rtlab.api import Study
from rtlab.errors import guard_methods
from rtlab.study.grid import Grid, grid
from rtlab.study.sweep import ResultStore, Sweep

__all__ = ["Grid", "Store", "Sweep", "grid"]


@guard_methods
class Store(ResultStore):
    """A folder with results of many variants of many models, by content: what is there is not computed again.

    The first ``run`` makes it; several processes and machines may write to it at once.

    Args:
        path: The folder: a store, an empty one, or one that is not there yet.

    Raises:
        ReadError: the folder is of something else, or the store of another schema.
    """

    _session = Study

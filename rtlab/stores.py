"""Many variants of many models: ``rtlab.grid`` makes them, ``rtlab.Store`` runs them and has their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rtlab.api import Study
from rtlab.core.phrases import quote_names
from rtlab.errors import VariantError, boundary, guard_methods
from rtlab.study.following import StoreFollower
from rtlab.study.grid import Grid, grid
from rtlab.study.sweep import ResultStore, Sweep
from rtlab.study.sweep_rows import SweepRow, add_deltas, select_rows
from rtlab.web.page import sweep_figures

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from rtlab.web.explorer.explorer import Explorer

__all__ = ["Grid", "Store", "Sweep", "grid"]

#: Figures of a sweep, with what can be chosen of each.
_SETTINGS = {"pareto": {"x", "y"}, "parallel": {"color"}}


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

    @boundary("show the Explorer")
    def explore(self, model: str, **options: Any) -> Explorer:
        """The Explorer on the results of a model; those that come later, from any process, are added to it.

        Args:
            model: Its name, or the digest of its study, as ``study`` takes it.
            options: Those of ``Study.explore``.

        >>> store.explore("tiny")
        <Explorer tiny: 2 variants>
        """
        return self.explore_study(self.find_study(model), **options)

    def explore_study(self, digest: str, **options: Any) -> Explorer:
        """The same by the digest of a study, of which there may be no result yet."""
        state, stride = self.open_state(digest)
        study = Study.of_state(state, stride)
        follower = StoreFollower(self, digest, study)
        explorer = study.explore(**options)
        # A widget that is closed has no comm.
        explorer.observe(lambda change: follower.stop() if change["new"] is None else None, "comm")
        follower.start()
        return explorer

    @boundary("draw the figure")
    def figure(self, name: str, *keys: str, **settings: str) -> go.Figure:
        """A figure of all results, or of those that ``frame`` returns for the same keys: see ``Sweep.figure``.

        >>> store.figure("parallel", "tiny").data[0].dimensions[0].label
        'precision'
        """
        rows = select_rows(add_deltas(self.rows()), keys)
        if keys and not rows:
            raise VariantError(
                f'Cannot draw "{name}": no result is of {quote_names(keys)}. Give keys, or names of models, of frame().'
            )
        return self.draw_figure(name, rows, (), settings)

    def draw_figure(
        self,
        name: str,
        rows: Sequence[SweepRow],
        choices: Sequence[Mapping[str, str]],
        settings: Mapping[str, str],
    ) -> go.Figure:
        """A figure of rows, and of what was chosen for each: see ``Sweep.figure``."""
        if name not in _SETTINGS:
            raise VariantError(
                f'Cannot draw "{name}": there is no such figure of a sweep. Choose one of {quote_names(_SETTINGS)}.'
            )
        if unknown := {*settings} - _SETTINGS[name]:
            raise VariantError(
                f'Cannot draw "{name}" by {quote_names(unknown)}: it has the settings '
                f"{quote_names(sorted(_SETTINGS[name]))}. Choose of these."
            )
        if name == "pareto":
            return sweep_figures.draw_pareto(rows, **settings)
        return sweep_figures.draw_parallel(rows, choices, **settings)

"""``rtlab rules --build``: the catalogue of planted cases, asked of a compiler that is here."""

from __future__ import annotations

import fnmatch

from rtlab.backends.choosing import builder_for, default_target
from rtlab.backends.roles import role
from rtlab.core.phrases import quoted
from rtlab.core.protocols import Progress
from rtlab.core.variant import Target
from rtlab.errors import VariantError, boundary
from rtlab.experiments.experiment import Rig, carry_out
from rtlab.experiments.rules import RuleTable, cases
from rtlab.questions.rules import FusionRules
from rtlab.session.watching import watching


@boundary("ask the catalogue of fusions")
def ask_rules(
    backend: str | None = None,
    target: str | None = None,
    *,
    compiler: str | None = None,
    pattern: str = "*",
    progress: Progress | None = None,
) -> FusionRules:
    """Ask a compiler the catalogue of planted cases: what it fuses, beside what is documented.

    Args:
        backend: The compiler; the best that is here by default.
        target: What is built for; what that compiler builds for by default.
        compiler: A release of the compiler that is kept here, such as ``1.6``: see ``rtlab.compilers``.
        pattern: Names of the cases, with ``*`` and ``?``.
        progress: Where to report; the host's reporter by default.

    Raises:
        VariantError: no case has such a name, or the release is of another backend.
        Unavailable: there is no such compiler here.
        Cancelled: the work was stopped.
    """
    asked = tuple(c for c in cases() if fnmatch.fnmatchcase(c.name, pattern))
    if not asked:
        raise VariantError(
            f'Cannot ask the case "{pattern}": there is none. Choose of {quoted(c.name for c in cases())}.'
        )
    builder = role(builder_for(backend, target, compiler), "builds", "build")
    able = builder.capabilities()
    table = RuleTable(
        builder.name,
        able.maker.title or builder.name,
        builder.availability().version,
        Target(target or default_target(builder.name)),
        asked,
    )
    with watching(progress) as watched:
        return carry_out(table, Rig(builder, watched))

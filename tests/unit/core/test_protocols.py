"""What capabilities say of an engine, and which members a role asks for."""

from __future__ import annotations

import pytest

from rtlab.core.engine import Engine
from rtlab.core.protocols import Capabilities
from rtlab.core.variant import Target


@pytest.mark.parametrize(
    ("able", "target", "itself"),
    [
        ({"runs": True}, "cpu", True),
        ({"runs": False}, "cpu", False),
        # Compiled for another GPU than the one that is here.
        ({"runs": True, "local": Target("sm86")}, "sm89", False),
        ({"runs": True, "local": Target("sm86")}, "sm86", True),
        # Its times are its own, its values are those of an emulation.
        ({"runs": True, "emulates": True}, "cpu", False),
    ],
)
def test_an_engine_is_run_by_its_backend_where_its_target_is_here(able, target, itself) -> None:
    engine = Engine("any", "1", Target(target), ())
    assert itself is Capabilities((), (), **able).runs_itself(engine)

"""What capabilities say of an engine, and which members a role asks for."""

from __future__ import annotations

import pytest

from rtlab.core.engine import Engine
from rtlab.core.protocols import ROLES, Capabilities, lacking
from rtlab.core.variant import Target
from rtlab.testing import ReferenceBackend


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


def test_what_a_role_asks_for_is_what_its_protocol_declares() -> None:
    backend = ReferenceBackend()
    assert ((), ()) == (lacking(backend, "builds"), lacking(backend, "runs"))
    assert ("open_plan", "save") == lacking(backend, "opens")
    assert ("source", "profile", "outputs", "unfused", "release") == lacking(object(), "runs")
    fields = set(Capabilities.__dataclass_fields__)
    assert set(ROLES) <= fields

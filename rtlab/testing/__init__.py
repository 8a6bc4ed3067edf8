"""For tests of rtlab and of what is built on it: a small model, a slow backend, and what every backend must keep.

``conformance(backend)`` gives the checks that each backend passes, ours and others':

>>> from rtlab.testing import ReferenceBackend, conformance
>>> for check in conformance(ReferenceBackend()):
...     check()

With pytest, ``parametrize("check", conformance(Mine()), ids=str)`` makes each a test of its own.
"""

from __future__ import annotations

from rtlab.testing.conforming import Check, conformance
from rtlab.testing.fakes import ReferenceBackend, tiny_model

__all__ = ["Check", "ReferenceBackend", "conformance", "tiny_model"]

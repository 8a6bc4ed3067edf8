"""Several releases of a compiler side by side: what ``rtlab compilers`` does, in Python.

``known()`` lists them, ``add("1.5")`` installs one into a folder of its own, ``remove("1.5")`` takes it away;
``study.add("old", compiler="1.5")`` builds with it.
"""

from __future__ import annotations

from rtlab.backends.compilers import Compiler, add, folder, known, named, remove

__all__ = ["Compiler", "add", "folder", "known", "named", "remove"]

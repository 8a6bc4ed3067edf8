"""Commands of ``trtexec`` as they are typed.

Its sizes are in MiB where no unit follows, and it reads one letter as a unit: B, K, M or G. So ``workspace:1024MiB``
ends in B and is 1,024 bytes; rtlab writes sizes without a unit.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

_MIB = 1 << 20


def format_flag(name: str, value: str | Mapping[str, int] | None = None) -> str:
    """A flag with its value, quoted for a shell; a mapping gives sizes in bytes by pool, written in MiB, rounded up."""
    if value is None:
        return f"--{name}"
    if isinstance(value, Mapping):
        value = ",".join(f"{pool}:{-(-nbytes // _MIB)}" for pool, nbytes in value.items())
    return shlex.quote(f"--{name}={value}")


def format_command(*flags: str) -> str:
    """A command line of these flags."""
    return f"trtexec {' '.join(flags)}"

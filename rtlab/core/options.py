"""Settings of a TensorRT builder, by TensorRT's own names."""

from __future__ import annotations

import dataclasses
import numbers
import operator
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rtlab.errors import VariantError

#: One optimization profile: least, usual and greatest shape of each dynamic input.
Shapes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]

_GREATEST = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class BuildOptions:
    """Settings of a builder. The binding of the backend decides which of them exist.

    ``config`` sets attributes of ``IBuilderConfig``, such as ``builder_optimization_level``; an enum's member is its
    name. ``flags`` and ``cleared`` name members of ``BuilderFlag``; ``pools`` gives limits in bytes by
    ``MemoryPoolType``. ``timing_cache`` is a file that is read before a build and written after it.
    """

    config: tuple[tuple[str, Any], ...] = ()
    flags: tuple[str, ...] = ()
    cleared: tuple[str, ...] = ()
    pools: tuple[tuple[str, int], ...] = ()
    profiles: tuple[tuple[tuple[str, Shapes], ...], ...] = ()
    timing_cache: Path | None = None

    def __post_init__(self) -> None:
        """Resolve what is written as in ``of``: lists of flags, limits by pool, profiles, the path of a file."""
        for name in ("flags", "cleared"):
            object.__setattr__(self, name, _sort_names(getattr(self, name), name))
        if both := sorted({*self.flags} & {*self.cleared}):
            raise VariantError(
                f'Cannot set and clear builder flag "{both[0]}" at once: it is in flags and in cleared. Leave out one.'
            )
        object.__setattr__(self, "pools", _parse_pools(self.pools))
        object.__setattr__(self, "profiles", _parse_profiles(self.profiles))
        path: Any = self.timing_cache
        if path is not None and (not isinstance(path, (str, Path)) or not str(path) or "\0" in str(path)):
            raise VariantError(
                f'Cannot keep a timing cache in {path!r}: it is no path. Name a file, such as "timing.cache".'
            )
        object.__setattr__(self, "timing_cache", path and Path(path))

    def __str__(self) -> str:
        """All of it on one line, as it is spelled in a variant's id."""
        spelled = [f"{name}={value}" for name, value in self.config]
        spelled += [f"+{flag}" for flag in self.flags] + [f"-{flag}" for flag in self.cleared]
        spelled += [f"{pool}={size}" for pool, size in self.pools]
        for profile in self.profiles:
            each = (f"{name}:" + "..".join("x".join(map(str, s)) for s in shapes) for name, shapes in profile)
            spelled.append(f"profile({', '.join(each)})")
        if self.timing_cache is not None:
            spelled.append(f"timing_cache={self.timing_cache}")
        return " ".join(spelled)

    @property
    def count(self) -> int:
        """How many settings there are."""
        parts = (self.config, self.flags, self.cleared, self.pools, self.profiles)
        return sum(map(len, parts)) + (self.timing_cache is not None)

    @classmethod
    def of(
        cls,
        *,
        flags: Sequence[str] = (),
        cleared: Sequence[str] = (),
        pools: Mapping[str, int] | None = None,
        profiles: Sequence[Mapping[str, Sequence[Sequence[int]]]] = (),
        timing_cache: str | Path | None = None,
        **config: Any,
    ) -> BuildOptions:
        """Options as one writes them: ``of(builder_optimization_level=5, profiles=[{"x": (least, usual, most)}])``.

        Members of TensorRT's enums are given by name or as they are; ``tactic_sources`` and ``preview_features`` take
        several. A profile gives sizes, or for a shape tensor its values. The order of names does not count, that of
        profiles does.

        Raises:
            VariantError: a profile is not three shapes of one rank in rising order, a limit is no number of bytes, or
                a value is of no kind that a builder takes.
        """
        settings = tuple((k, _normalize_value(k, v)) for k, v in sorted(config.items()))
        parts: Any = flags, cleared, pools or {}, profiles, timing_cache
        return cls(settings, *parts)


def _get_member_name(member: Any) -> str:
    """A member's name; the members of the vendor's enums have one."""
    return member if isinstance(member, str) else str(getattr(member, "name", member))


def _sort_names(members: Any, noun: str) -> tuple[str, ...]:
    if isinstance(members, str) or not isinstance(members, Iterable):
        raise VariantError(
            f'Cannot read {noun} "{members}" of a builder: it is no list. Write {noun}=["{_get_member_name(members)}"].'
        )
    return tuple(sorted({_get_member_name(one) for one in members}))


def _normalize_value(name: str, option: Any) -> Any:
    """A plain value that can be hashed and pickled."""
    if option is None or isinstance(option, (bool, str)):
        return option
    if hasattr(option, "__members__") or hasattr(type(option), "__members__"):
        return _get_member_name(option)
    if isinstance(option, numbers.Integral):
        return int(option)
    if isinstance(option, numbers.Real):
        return float(option)
    if isinstance(option, Path):
        return str(option)
    if isinstance(option, (list, tuple, set, frozenset)):
        return tuple(_normalize_value(name, one) for one in option)
    raise VariantError(
        f"Cannot give a builder {name}={option!r}: it is a {type(option).__name__}. "
        "Give a number, a text, the name of a member, or a list of them."
    )


def _parse_pools(pools: Any) -> tuple[tuple[str, int], ...]:
    if isinstance(pools, tuple):
        return pools
    if not isinstance(pools, Mapping):
        raise VariantError(
            f'Cannot limit memory pools to {pools!r}: it is no mapping. Write pools={{"WORKSPACE": 1 << 30}}.'
        )
    for pool, size in pools.items():
        if isinstance(size, bool) or not isinstance(size, numbers.Integral) or not 0 <= int(size) < 2**63:
            raise VariantError(
                f'Cannot limit memory pool "{_get_member_name(pool)}" to {size!r}: it is no number of bytes. '
                "Give a whole number, such as 1 << 30."
            )
    return tuple(sorted((_get_member_name(pool), int(size)) for pool, size in pools.items()))


def _parse_profiles(profiles: Any) -> tuple[tuple[tuple[str, Shapes], ...], ...]:
    if isinstance(profiles, str) or not isinstance(profiles, Sequence):
        raise VariantError(
            "Cannot read optimization profiles: they are no list. "
            'Write profiles=[{"input": (least, usual, greatest)}], one mapping for each profile.'
        )
    return tuple(p if isinstance(p, tuple) else _parse_profile(n, p) for n, p in enumerate(profiles))


def _parse_profile(number: int, bounds: Any) -> tuple[tuple[str, Shapes], ...]:
    error_prefix = f"Cannot use optimization profile {number}"
    if not isinstance(bounds, Mapping):
        raise VariantError(
            f"{error_prefix}: it is a {type(bounds).__name__}. Give a mapping from inputs to (least, usual, greatest)."
        )
    return tuple(
        sorted((str(name), _parse_shapes(error_prefix, name, shapes)) for name, shapes in bounds.items())
    )


def _parse_shapes(error_prefix: str, name: Any, bounds: Any) -> Shapes:
    try:
        least, usual, most = (tuple(operator.index(size) for size in shape) for shape in bounds)
        if all(0 <= a <= b <= c <= _GREATEST for a, b, c in zip(least, usual, most, strict=True)):
            return least, usual, most
    except (TypeError, ValueError):
        pass
    raise VariantError(
        f'{error_prefix}: input "{name}" has {bounds!r}. Give three shapes (least, usual, greatest) of one rank, each '
        "size at least that of the one before."
    )

"""Forcing a tactic: a variant whose build takes another than the fastest.

TensorRT 10.10 and later do this through an editable timing cache. It holds the operators of TensorRT's graph compiler;
layers of its other runners are listed with the tactics that were timed for them, and cannot be forced.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rtlab import backends
from rtlab.backends.roles import able, advice, role
from rtlab.core.buildlog import Entry, TacticTime
from rtlab.core.facts import Facts
from rtlab.core.options import BuildOptions
from rtlab.core.protocols import Capabilities, Progress, Tuner
from rtlab.core.variant import Variant
from rtlab.errors import VariantError
from rtlab.experiments.tactics import LayerTactics, TacticListing

#: Candidates that a message names.
_NAMED = 6


def listing(result: Facts, others: Iterable[Facts]) -> tuple[TacticListing, Tuner | None]:
    """The listing of a variant's tactics, and what reads its log and its cache; None where it is read from files.

    Args:
        result: The variant.
        others: Those whose logs count where they differ in the timing cache only.

    Raises:
        VariantError: its backend times no tactics while it builds: TensorRT-RTX times them on the GPU when it loads an
            engine.
    """
    _check_backend(_listing(result), result)
    if result.recorded:
        return TacticListing(result, (), None), None
    tuner, cache = _tuner(result.engine.backend), _cache(result)
    alike = [] if _locked(result) else [o for o in others if o is not result and _shares(result, o)]
    logs = tuple(f.engine.log for f in (result, *alike))
    return TacticListing(result, logs, None if _locked(result) else cache), tuner


def silent(result: Facts) -> VariantError:
    """The error of a variant of whose tactics nothing is told."""
    return VariantError(
        f"{_listing(result)}: no log tells of a tactic that was timed, since there is none, it is not verbose, or the "
        f"timing cache knew all. {_advice()}, or read the log of trtexec --verbose."
    )


def check(result: Facts, wanted: Mapping[str, str | int]) -> None:
    """Raise ``VariantError`` where no tactic of a variant can be forced, or none is named."""
    doing = _forcing(result)
    _check_backend(doing, result)
    if reason := _locked(result):
        raise VariantError(f"{doing}: {reason} {_advice()}.")
    if not wanted:
        raise VariantError(
            f"{doing}: none is named. Choose among those of study.tactics({result.name!r}), as "
            f'{{"layer": "0x665ded9abbf88"}}.'
        )


def force(
    result: Facts,
    wanted: Mapping[str, str | int],
    table: Sequence[LayerTactics],
    copy: Path,
    progress: Progress,
) -> Variant:
    """The variant whose build takes other tactics; its edited timing cache is written to ``copy``.

    Where an operator was timed in several forms, as in FP16 and in FP32, each that has the tactic is forced.

    Args:
        result: A variant that passed ``check``, whose timing cache is only read.
        wanted: By layer, as ``table`` names it or by an ONNX node of it, a tactic: its id or its kernel's name.
        table: Its tactics.
        copy: Where the edited cache goes.
        progress: Asked whether to stop.

    Raises:
        VariantError: a layer or a tactic is unknown or cannot be forced, or nothing would change.
        ReadError: the timing cache cannot be read, or is of another version or GPU.
        BackendError: the child process that edits it crashed.
        RtlabError: the copy cannot be written.
    """
    doing = _forcing(result)
    entries: dict[str, Entry] = {}
    for layer, tactic in wanted.items():
        for key, chosen in _chosen(doing, table, layer, tactic).items():
            entries[key] = Entry(key, int(chosen.tactic, 0), chosen.milliseconds)
    holds = {t.key: int(t.remembered.tactic, 0) for t in table if t.remembered is not None}
    if all(holds[key] == entry.tactic for key, entry in entries.items()):
        raise VariantError(
            f"{doing}: its timing cache holds these already, so nothing would differ. Choose others of "
            f"study.tactics({result.name!r})."
        )
    options = result.variant.options or BuildOptions()
    assert options.timing_cache is not None  # noqa: S101 - such a variant has no tactics that can be forced
    _tuner(result.engine.backend).forced(options.timing_cache, copy, tuple(entries.values()), progress)
    return dataclasses.replace(result.variant, options=dataclasses.replace(options, timing_cache=copy))


def copy_path(result: Facts, name: str, given: str | Path | None, variants: Mapping[str, Variant]) -> Path:
    """Where the edited cache of a variant ``name`` goes: where it is told to, else beside the one that is read.

    Raises:
        VariantError: the variant is the one that is forced, or another variant builds with that file.
    """
    if name == result.name:
        raise VariantError(
            f'Cannot call the forced variant "{name}": this is the one that it is made of. Choose as_="forced".'
        )
    kept = _cache(result) or Path("timing.cache")
    plain = re.sub(r"[^\w.-]+", "_", name)
    path = Path(given) if given is not None else kept.with_name(f"{kept.stem}.{plain}{kept.suffix}")
    for other, variant in variants.items():
        used = variant.options.timing_cache if variant.options else None
        if other != name and used is not None and used.resolve() == path.resolve():
            raise VariantError(
                f'Cannot write the edited timing cache to "{path}": variant "{other}" builds with it. Choose another '
                "file, as cache=..., or another name, as as_=..."
            )
    return path


def _listing(result: Facts) -> str:
    return f'Cannot list the tactics of variant "{result.name}"'


def _forcing(result: Facts) -> str:
    return f'Cannot force tactics of variant "{result.name}"'


def _check_backend(doing: str, result: Facts) -> None:
    engine = result.engine
    if engine.maker.tunes == "load":
        raise VariantError(
            f"{doing}: {engine.compiler} tunes on the GPU when it loads an engine, and its builds time nothing. Choose "
            f"{advice(_forces)}."
        )
    if not result.recorded and not backends.get(engine.backend).capabilities().forces:
        raise VariantError(
            f'{doing}: backend "{engine.backend}" times no tactics while it builds. Choose '
            f"{advice(_forces)}, or study.tune() for formulations on this CPU."
        )


def _locked(result: Facts) -> str:
    """Why a variant has no timing cache that can be edited here; empty where it has one."""
    options = result.variant.options
    if result.recorded:
        return "it was read from files of another machine, and a timing cache serves only where it was made."
    flag = _tuner(result.engine.backend).flag
    if options is None or flag not in options.flags or options.timing_cache is None:
        return "its build kept no timing cache that can be edited."
    return ""


def _cache(result: Facts) -> Path | None:
    return result.variant.options.timing_cache if result.variant.options else None


def _forces(capable: Capabilities) -> bool:
    return capable.forces


def _tuner(name: str) -> Tuner:
    found: Tuner = role(name, "forces", "edit a timing cache")
    return found


def _advice() -> str:
    """How a variant is built whose tactics can be forced."""
    return " or ".join(
        f'Add it with backend="{name}", options={{"flags": ["{_tuner(name).flag}"], "timing_cache": "new.cache"}} '
        "and run it"
        for name in able(_forces)
    )


def _shares(result: Facts, other: Facts) -> bool:
    """Whether another variant was built here too, and differs in its editable timing cache at most."""
    bare = [
        dataclasses.replace(v, options=dataclasses.replace(v.options or BuildOptions(), timing_cache=None))
        for v in (result.variant, other.variant)
    ]
    return bare[0] == bare[1] and not _locked(other)


def _chosen(
    doing: str, table: Iterable[LayerTactics], layer: str, tactic: str | int
) -> dict[str, TacticTime]:
    """The tactic in each form of a layer that has it, by key."""
    mine = [t for t in table if t.layer == layer] or [t for t in table if layer in t.nodes]
    free = dict.fromkeys(t.layer for t in table if t.key)
    if not mine:
        close = difflib.get_close_matches(layer, free, n=1)
        hint = f'Did you mean "{close[0]}"? ' if close else ""
        raise VariantError(f'{doing}: no layer "{layer}" was timed. {hint}Choose one of {_listed(free)}.')
    forms = [t for t in mine if t.key]
    if not forms:
        raise VariantError(
            f'{doing}: layer "{layer}" has no entry in the timing cache, which holds operators of TensorRT\'s graph '
            f"compiler only. Choose one of {_listed(free)}."
        )
    found = {form.key: one for form in forms for one in form.timed if _is(one, tactic)}
    if not found:
        timed = {t.tactic: t for form in forms for t in form.timed}
        ranked = sorted(timed.values(), key=lambda t: t.milliseconds)
        shown = [f'"{t.tactic}" ({t.name}, {t.milliseconds:g} ms)' for t in ranked[:_NAMED]]
        more = f" and {len(ranked) - _NAMED} more" if len(ranked) > _NAMED else ""
        raise VariantError(
            f'{doing}: tactic "{tactic}" was not timed for layer "{layer}". Choose one of {", ".join(shown)}{more}.'
        )
    return found


def _is(timed: TacticTime, wanted: str | int) -> bool:
    if isinstance(wanted, str) and wanted == timed.name:
        return True
    try:
        return int(timed.tactic, 0) == (int(wanted, 0) if isinstance(wanted, str) else wanted)
    except ValueError:
        return False


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    shown = ", ".join(f'"{n}"' for n in every[:_NAMED]) or "none: no operator of this build is in the cache"
    return f"{shown} and {len(every) - _NAMED} more" if len(every) > _NAMED else shown

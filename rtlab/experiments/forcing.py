"""Forcing a tactic: what the builder timed for each layer, and a variant whose build takes another than the fastest.

TensorRT 10.10 and later do this through an editable timing cache. It holds the operators of TensorRT's graph compiler;
layers of its other runners are listed with the tactics that were timed for them, and cannot be forced.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from rtlab import backends, questions
from rtlab.backends.roles import able, advice, role
from rtlab.core.buildlog import Entry, Operator, TacticTime
from rtlab.core.facts import Facts
from rtlab.core.options import BuildOptions
from rtlab.core.protocols import Capabilities, Progress, Tuner
from rtlab.core.variant import Variant
from rtlab.errors import VariantError
from rtlab.questions.build.tactics import contests

#: Candidates that a message names.
_NAMED = 6


@dataclasses.dataclass(frozen=True)
class LayerTactics:
    """What was timed for one layer, and what the timing cache holds for it.

    Attributes:
        layer: The operator or layer as the build log names it.
        nodes: Labels of its ONNX nodes, where the log tells them.
        timed: Its tactics, the fastest first, by milliseconds that the builder *reported*; of layers of other runners
            than the graph compiler at most the best 20.
        remembered: What the timing cache holds, and a build with it takes; None where no editable cache has it.
        key: Its key in the cache; empty where it cannot be forced.
    """

    layer: str
    nodes: tuple[str, ...]
    timed: tuple[TacticTime, ...]
    remembered: TacticTime | None = None
    key: str = ""

    @property
    def cost(self) -> float | None:
        """Milliseconds that what is remembered takes longer than the fastest, *reported*; None where it is untimed."""
        if self.remembered is None:
            return None
        known = [t for t in self.timed if int(t.tactic, 0) == int(self.remembered.tactic, 0)]
        return known[0].milliseconds - self.timed[0].milliseconds if known else None


def tactics(
    result: Facts, others: Iterable[Facts] = (), progress: Progress | None = None
) -> tuple[LayerTactics, ...]:
    """The tactics of each layer: first the operators of the graph compiler, then the layers of other runners.

    A build that finds an operator in its timing cache does not time it again. So the logs of ``others`` count too,
    where these differ in the cache only.

    Raises:
        VariantError: no log tells of tactics: TensorRT-RTX times them on the GPU when it loads an engine.
        ReadError: the timing cache cannot be read, or is of another version or GPU.
        BackendError: the child process that reads it crashed.
    """
    doing = f'Cannot list the tactics of variant "{result.name}"'
    _check_backend(doing, result)
    own = _operators(result)
    remembered: Mapping[str, Entry] = {}
    if not _locked(result):
        known = {o.key: o for o in own if o.key}
        for other in others:
            if other is not result and not _locked(other) and _alike(result.variant, other.variant):
                known |= {o.key: o for o in _operators(other) if o.key and o.key not in known}
        if known:
            remembered = _tuner(result.engine.backend).remembered(_cache(result), tuple(known), progress)
        told = {o.key for o in own}
        own = (*own, *(o for key, o in known.items() if key in remembered and key not in told))
    found = [_of(o, remembered.get(o.key)) for o in own]
    log = questions.build.log(result)
    found += [
        LayerTactics(contest.layer, (), tuple(c.tactic for c in contest.candidates))
        for contest in (contests(log) if log is not None else ())
    ]
    if not found:
        raise VariantError(
            f"{doing}: no log tells of a tactic that was timed, since there is none, it is not verbose, or the timing "
            f"cache knew all. {_advice()}, or read the log of trtexec --verbose."
        )
    return tuple(found)


def force(
    result: Facts,
    wanted: Mapping[str, str | int],
    copy: str | Path,
    others: Iterable[Facts] = (),
    progress: Progress | None = None,
) -> Variant:
    """The variant whose build takes other tactics; its edited timing cache is written to ``copy``.

    Where an operator was timed in several forms, as in FP16 and in FP32, each that has the tactic is forced.

    Args:
        result: A variant that was built here with an editable timing cache, which is only read.
        wanted: By layer, as ``tactics`` names it or by an ONNX node of it, a tactic: its id or its kernel's name.
        copy: Where the edited cache goes.
        others: As for ``tactics``.
        progress: Asked whether to stop.

    Raises:
        VariantError: the variant has no editable timing cache, a layer or a tactic is unknown or cannot be forced, or
            nothing would change.
        ReadError, BackendError: as ``tactics``.
        RtlabError: the copy cannot be written.
    """
    doing = f'Cannot force tactics of variant "{result.name}"'
    _check_backend(doing, result)
    if reason := _locked(result):
        raise VariantError(f"{doing}: {reason} {_advice()}.")
    if not wanted:
        raise VariantError(
            f"{doing}: none is named. Choose among those of study.tactics({result.name!r}), as "
            f'{{"layer": "0x665ded9abbf88"}}.'
        )
    table = tactics(result, others, progress)
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
    _tuner(result.engine.backend).forced(_cache(result), copy, tuple(entries.values()), progress)
    options = result.variant.options or BuildOptions()
    return dataclasses.replace(result.variant, options=dataclasses.replace(options, timing_cache=Path(copy)))


def copy_path(result: Facts, name: str, given: str | Path | None, variants: Mapping[str, Variant]) -> Path:
    """Where the edited cache of a variant ``name`` goes: where it is told to, else beside the one that is read.

    Raises:
        VariantError: the variant is the one that is forced, or another variant builds with that file.
    """
    if name == result.name:
        raise VariantError(
            f'Cannot call the forced variant "{name}": this is the one that it is made of. Choose as_="forced".'
        )
    kept = result.variant.options.timing_cache if result.variant.options else None
    kept = kept or Path("timing.cache")
    path = Path(given) if given is not None else kept.with_name(f"{kept.stem}.{_plain(name)}{kept.suffix}")
    for other, variant in variants.items():
        used = variant.options.timing_cache if variant.options else None
        if other != name and used is not None and used.resolve() == path.resolve():
            raise VariantError(
                f'Cannot write the edited timing cache to "{path}": variant "{other}" builds with it. Choose another '
                "file, as cache=..., or another name, as as_=..."
            )
    return path


def _plain(name: str) -> str:
    """A variant's name as part of a file's."""
    return re.sub(r"[^\w.-]+", "_", name)


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


def _cache(result: Facts) -> Path:
    path = result.variant.options.timing_cache if result.variant.options else None
    if path is None:
        raise VariantError(f'Variant "{result.name}" has no timing cache. {_advice()}.')
    return path


def _forces(capable: Capabilities) -> bool:
    return capable.forces


def _tuner(name: str) -> Tuner:
    found: Tuner = role(name, "forces", "edit a timing cache")
    return found


def _operators(result: Facts) -> tuple[Operator, ...]:
    """What the log of a build made here lists; files of another machine bring a log of their own."""
    return () if result.recorded else _tuner(result.engine.backend).operators(result.engine.log)


def _advice() -> str:
    """How a variant is built whose tactics can be forced."""
    return " or ".join(
        f'Add it with backend="{name}", options={{"flags": ["{_tuner(name).flag}"], "timing_cache": "new.cache"}} '
        "and run it"
        for name in able(_forces)
    )


def _alike(one: Variant, other: Variant) -> bool:
    """Whether two variants differ in the timing cache at most."""
    bare = [
        dataclasses.replace(v, options=dataclasses.replace(v.options or BuildOptions(), timing_cache=None))
        for v in (one, other)
    ]
    return bare[0] == bare[1]


def _of(operator: Operator, entry: Entry | None) -> LayerTactics:
    holds = None
    if entry is not None:
        names = {int(t.tactic, 0): t.name for t in operator.timed}
        holds = TacticTime(entry.id, names.get(entry.tactic, ""), entry.milliseconds)
    return LayerTactics(operator.name, operator.nodes, operator.timed, holds, operator.key if holds else "")


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

"""Forcing a tactic: a variant whose build takes another than the fastest.

TensorRT 10.10 and later do this through an editable timing cache. It holds the operators of TensorRT's graph compiler;
layers of its other runners are listed with the tactics that were timed for them, and cannot be forced.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from rtlab import backends
from rtlab.analyses.build import get_build_log
from rtlab.analyses.build.tactics import LayerTactics, find_contests
from rtlab.backends.capabilities import list_capable, require_capability, suggest_backends
from rtlab.core.budget import WorkContext
from rtlab.core.buildlog import Entry, Operator, TacticTime
from rtlab.core.facts import VariantResult
from rtlab.core.options import BuildOptions
from rtlab.core.phrases import quote_names
from rtlab.core.protocols import Capabilities, Progress, Tuner
from rtlab.core.variant import Variant
from rtlab.errors import VariantError

#: Layers or tactics that a message names.
_NAMED = 6
_ACTIVITY = "listing the tactics"


@dataclasses.dataclass(frozen=True)
class TacticListing:
    """List the tactics of each layer: first the operators of the graph compiler, then the layers of other runners.

    ``logs`` are of builds made here, the variant's own first: a build that finds an operator in its timing cache does
    not time it again, so that logs of others count that differ in the cache only; empty where it was read from files.
    ``cache`` is None where none can be edited here.
    """

    facts: VariantResult
    logs: tuple[str, ...]
    cache: Path | None
    partial: ClassVar[bool] = False

    def steps(self, context: WorkContext[Tuner | None]) -> Iterator[tuple[LayerTactics, ...]]:
        """The tactics of the logs, then with the entries of the cache, which a child process reads.

        Raises:
            ReadError: the timing cache cannot be read, or is of another version or GPU.
            BackendError: the child process that reads it crashed.
        """
        tuner = context.tool
        log_operators = (
            [] if tuner is None else [tuner.operators(log) for log in context.iterate(self.logs, _ACTIVITY)]
        )
        variant_operators = log_operators[0] if log_operators else ()
        operators_by_key: dict[str, Operator] = {}
        for operator in (o for operators in log_operators for o in operators if o.key):
            operators_by_key.setdefault(operator.key, operator)
        yield self._list_layers(variant_operators, {})
        for cache in context.iterate((self.cache,), _ACTIVITY):
            if tuner is None or cache is None or not operators_by_key:
                return
            cache_entries = tuner.remembered(cache, tuple(operators_by_key), context)
            context.count(builds=1)
            listed_keys = {o.key for o in variant_operators}
            more = (
                o for key, o in operators_by_key.items() if key in cache_entries and key not in listed_keys
            )
            yield self._list_layers((*variant_operators, *more), cache_entries)

    def _list_layers(
        self, operators: Iterable[Operator], cache_entries: Mapping[str, Entry]
    ) -> tuple[LayerTactics, ...]:
        layers = [_make_layer_tactics(o, cache_entries.get(o.key)) for o in operators]
        log = get_build_log(self.facts)
        layers += [
            LayerTactics(contest.layer, (), tuple(c.tactic for c in contest.candidates))
            for contest in (find_contests(log) if log is not None else ())
            if not contest.operator
        ]
        return tuple(layers)


def _make_layer_tactics(operator: Operator, entry: Entry | None) -> LayerTactics:
    holds = None
    if entry is not None:
        names = {int(t.tactic, 0): t.name for t in operator.timed}
        holds = TacticTime(entry.id, names.get(entry.tactic, ""), entry.milliseconds)
    return LayerTactics(operator.name, operator.nodes, operator.timed, holds, operator.key if holds else "")


def listing(result: VariantResult, others: Iterable[VariantResult]) -> tuple[TacticListing, Tuner | None]:
    """The listing of a variant's tactics, and what reads its log and its cache; None where it is read from files.

    Of ``others`` the logs count where they differ in the timing cache only.

    Raises:
        VariantError: its backend times no tactics while it builds: TensorRT-RTX times them on the GPU when it loads an
            engine.
    """
    _check_backend(_listing_prefix(result), result)
    if result.recorded:
        return TacticListing(result, (), None), None
    tuner = _tuner(result.engine.backend)
    if _uneditable_reason(result):
        return TacticListing(result, (result.engine.log,), None), tuner
    alike = [o for o in others if o is not result and _differs_only_in_cache(result, o)]
    logs = tuple(f.engine.log for f in (result, *alike))
    return TacticListing(result, logs, _cache(result)), tuner


def no_tactics_error(result: VariantResult) -> VariantError:
    """The error of a variant of whose tactics nothing is known."""
    return VariantError(
        f"{_listing_prefix(result)}: no log reports a tactic that was timed, since there is none, it is not "
        f"verbose, or the timing cache knew all. {_advice()}, or read the log of trtexec --verbose."
    )


def check(result: VariantResult, tactics: Mapping[str, str | int]) -> None:
    """Raise ``VariantError`` where no tactic of a variant can be forced, or none is named."""
    prefix = _forcing_prefix(result)
    _check_backend(prefix, result)
    if reason := _uneditable_reason(result):
        raise VariantError(f"{prefix}: {reason} {_advice()}.")
    if not tactics:
        raise VariantError(
            f"{prefix}: none is named. Choose among those of study.tuning.tactics({result.name!r}), as "
            f'{{"layer": "0x665ded9abbf88"}}.'
        )


def force(
    result: VariantResult,
    tactics: Mapping[str, str | int],
    table: Sequence[LayerTactics],
    copy: Path,
    progress: Progress,
) -> Variant:
    """The variant whose build takes other tactics; its edited timing cache is written to ``copy``.

    ``result`` has passed ``check``. ``tactics`` has a tactic, by its id or its kernel's name, by a layer of ``table``
    or an ONNX node of it. Where an operator was timed in several forms, as in FP16 and in FP32, each with that tactic
    is forced.

    Raises:
        VariantError: a layer or a tactic is unknown or cannot be forced, or nothing would change.
        ReadError: the timing cache cannot be read, or is of another version or GPU.
        BackendError: the child process that edits it crashed.
        RtlabError: the copy cannot be written.
    """
    prefix = _forcing_prefix(result)
    entries: dict[str, Entry] = {}
    for layer, tactic in tactics.items():
        for key, candidate in _find_tactic(prefix, table, layer, tactic).items():
            entries[key] = Entry(key, int(candidate.tactic, 0), candidate.milliseconds)
    cached_tactics = {t.key: int(t.remembered.tactic, 0) for t in table if t.remembered is not None}
    if all(cached_tactics[key] == entry.tactic for key, entry in entries.items()):
        raise VariantError(
            f"{prefix}: its timing cache holds these already, so nothing would differ. Choose others of "
            f"study.tuning.tactics({result.name!r})."
        )
    options = result.variant.options or BuildOptions()
    assert options.timing_cache is not None  # noqa: S101 - such a variant has no tactics that can be forced
    _tuner(result.engine.backend).forced(options.timing_cache, copy, tuple(entries.values()), progress)
    return dataclasses.replace(result.variant, options=dataclasses.replace(options, timing_cache=copy))


def copy_path(result: VariantResult, name: str, variants: Mapping[str, Variant]) -> Path:
    """The file of the edited cache of a variant ``name``, beside the one that is read.

    Raises:
        VariantError: the variant is the one that is forced, or another variant builds with that file.
    """
    if name == result.name:
        raise VariantError(
            f'Cannot call the forced variant "{name}": this is the one that it is made of. Choose as_="forced".'
        )
    source_cache = _cache(result) or Path("timing.cache")
    plain = re.sub(r"[^\w.-]+", "_", name)
    path = source_cache.with_name(f"{source_cache.stem}.{plain}{source_cache.suffix}")
    for other, variant in variants.items():
        if other != name and variant.options is not None and variant.options.timing_cache == path:
            raise VariantError(
                f'Cannot write the edited timing cache to "{path}": variant "{other}" builds with it. Choose another '
                "name, as as_=..."
            )
    return path


def _listing_prefix(result: VariantResult) -> str:
    return f'Cannot list the tactics of variant "{result.name}"'


def _forcing_prefix(result: VariantResult) -> str:
    return f'Cannot force tactics of variant "{result.name}"'


def _check_backend(prefix: str, result: VariantResult) -> None:
    engine = result.engine
    if engine.maker.tunes == "load":
        raise VariantError(
            f"{prefix}: {engine.compiler} tunes on the GPU when it loads an engine, and its builds time nothing. "
            f"Choose {suggest_backends(_edits_timing_cache)}."
        )
    if not result.recorded and not backends.get(engine.backend).capabilities().forces:
        raise VariantError(
            f'{prefix}: backend "{engine.backend}" times no tactics while it builds. Choose '
            f"{suggest_backends(_edits_timing_cache)}, or study.tuning.tune() for formulations on this CPU."
        )


def _uneditable_reason(result: VariantResult) -> str:
    """Why a variant has no timing cache that can be edited here; empty where it has one."""
    options = result.variant.options
    if result.recorded:
        return "it was read from files of another machine, and a timing cache serves only where it was made."
    flag = _tuner(result.engine.backend).flag
    if options is None or flag not in options.flags or options.timing_cache is None:
        return "its build kept no timing cache that can be edited."
    return ""


def _cache(result: VariantResult) -> Path | None:
    return result.variant.options.timing_cache if result.variant.options else None


def _edits_timing_cache(capable: Capabilities) -> bool:
    return capable.forces


def _tuner(name: str) -> Tuner:
    tuner: Tuner = require_capability(name, "forces", "edit a timing cache")
    return tuner


def _advice() -> str:
    """How a variant is built whose tactics can be forced."""
    return " or ".join(
        f'Add it with backend="{name}", options={{"flags": ["{_tuner(name).flag}"], "timing_cache": "new.cache"}} '
        "and run it"
        for name in list_capable(_edits_timing_cache)
    )


def _differs_only_in_cache(result: VariantResult, other: VariantResult) -> bool:
    """Whether another variant was built here too, and differs in its editable timing cache at most."""
    bare = [
        dataclasses.replace(v, options=dataclasses.replace(v.options or BuildOptions(), timing_cache=None))
        for v in (result.variant, other.variant)
    ]
    return bare[0] == bare[1] and not _uneditable_reason(other)


def _find_tactic(
    prefix: str, table: Iterable[LayerTactics], layer: str, tactic: str | int
) -> dict[str, TacticTime]:
    """The tactic in each form of a layer that has it, by key."""
    layer_entries = [t for t in table if t.layer == layer] or [t for t in table if layer in t.nodes]
    forms = [t for t in layer_entries if t.key]
    if not forms:
        why = (
            "has no entry in the timing cache, which holds operators of TensorRT's graph compiler only"
            if layer_entries
            else "was not timed"
        )
        choices = (
            quote_names(dict.fromkeys(t.layer for t in table if t.key)) or "none: no operator is in the cache"
        )
        raise VariantError(f'{prefix}: layer "{layer}" {why}. Choose one of {choices}.')
    matches = {form.key: one for form in forms for one in form.timed if _matches_tactic(one, tactic)}
    if not matches:
        candidates = {t.tactic: t for form in forms for t in form.timed}
        ranking = sorted(candidates.values(), key=lambda t: t.milliseconds)
        choices = ", ".join(f'"{t.tactic}" ({t.name}, {t.milliseconds:g} ms)' for t in ranking[:_NAMED])
        raise VariantError(
            f'{prefix}: tactic "{tactic}" was not timed for layer "{layer}". Choose one of {choices}.'
        )
    return matches


def _matches_tactic(candidate: TacticTime, tactic: str | int) -> bool:
    if isinstance(tactic, str) and tactic == candidate.name:
        return True
    try:
        return int(candidate.tactic, 0) == (int(tactic, 0) if isinstance(tactic, str) else tactic)
    except ValueError:
        return False

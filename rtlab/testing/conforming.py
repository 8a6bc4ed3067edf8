"""What ``rtlab.core.protocols`` promises, as checks of a backend, each of which fails in words."""

from __future__ import annotations

import dataclasses
import functools
import math
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rtlab.core.buildlog import Entry
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.options import BuildOptions
from rtlab.core.precision import compute_relative_error
from rtlab.core.progress import Silent
from rtlab.core.protocols import ROLES, Availability, Backend, BuildRequest, Capabilities, Limits, lacking
from rtlab.core.trace import Outputs, Profile
from rtlab.core.variant import Precision, Target, Variant
from rtlab.errors import BuildError, Cancelled, ReadError, RtlabError, RunError, Unavailable, VariantError
from rtlab.testing.assertions import (
    assert_that,
    catch_error,
    check_engine,
    check_message,
    check_profile,
    describe_error,
    digest,
)
from rtlab.testing.explaining import make_unknown_op_model, rule_checks
from rtlab.testing.fakes import tiny_model
from rtlab.testing.networks import compute_reference, product

#: Greatest error of a value in fp32, relative to its largest magnitude: sums in another order, or in TF32.
_TOLERANCE = 5e-3
#: Timed runs and untimed ones; as many as no budget suffices for; that budget, in seconds.
_RUNS, _WARMUP, _MANY, _BUDGET = 3, 1, 1_000_000, 0.5
#: Seconds within which somebody looks whether a limit is passed.
_TICK = 1.0


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing that a backend promises. Called, it is tried, and raises ``AssertionError`` where it does not hold."""

    name: str
    action: Callable[[], None] = dataclasses.field(repr=False)

    def __call__(self) -> None:
        """Try it; raises ``AssertionError`` in words."""
        try:
            self.action()
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(
                f"it {self.name}: it raises {describe_error(error)}, which nothing promises"
            ) from error

    def __str__(self) -> str:
        return self.name


def conformance(
    backend: Backend, *, files: Mapping[str, str | Path] | None = None, tolerance: float = _TOLERANCE
) -> tuple[Check, ...]:
    """The checks that apply to a backend: all that it says it can do here is tried, on a network of ten nodes.

    Where it is not available, only what it says of itself is checked.

    Args:
        backend: An object that follows ``rtlab.core.protocols``.
        files: For a ``Reader``, files of one engine by kind, as ``read`` takes them. They are copied before they are
            read. Without them, only what it refuses is checked.
        tolerance: Greatest error of values in fp32 beside ONNX's reference evaluator, relative to the largest
            magnitude of each value.

    Returns:
        Checks to be called, in an order in which a failure explains those after it; each raises ``AssertionError``.
    """
    trial = _Trial(backend, {k: Path(p) for k, p in (files or {}).items()}, tolerance)
    return tuple(Check(name, action) for name, action in trial.checks())


class _AlwaysStopped(Silent):
    """Asks to stop from the beginning."""

    def stopped(self) -> bool:
        """Yes."""
        return True


class _Trial:
    """One backend under examination. Vendor calls are made by what is asked of it only."""

    def __init__(self, backend: Any, files: Mapping[str, Path], tolerance: float) -> None:
        self.backend, self.files, self.tolerance = backend, files, tolerance

    def checks(self) -> Iterator[tuple[str, Callable[[], None]]]:
        yield "says whether it works here", self.availability
        yield "says what it can do, and has the methods for it", self.claims
        if not self._here:
            return
        yield from self._building()
        yield from self._running()
        yield from self._others()

    def _building(self) -> Iterator[tuple[str, Callable[[], None]]]:
        able = self.able
        if able.builds:
            yield "builds for its default target", self.builds
            for target in able.targets[1:]:
                yield f"builds for {target}", functools.partial(self.builds_for, target)
            for precision in able.precisions:
                yield f"builds {precision}", functools.partial(self.builds_in, precision)
            yield "never says that it built for a target that it does not have", self.other_target
            yield "refuses a model that it cannot compile, with a message", self.unknown_operator
            yield "stops a build when it is asked to", self.build_stops
            yield "keeps a build within its limit of time", self.build_limit
            yield "builds engines that can be pickled", self.check_pickling

    def _running(self) -> Iterator[tuple[str, Callable[[], None]]]:
        if self.able.builds and self.able.runs:
            yield "times as many runs as it says", self.profiles
            yield "keeps to a budget of time", self.budget
            yield "times that can be merged", self.check_merging
            yield "computes what the model says", self.computes
            yield "tells inner values without changing them", self.inner
            yield "leaves its inputs as they are", self.inputs_stay
            yield "runs an engine that came from elsewhere", self.runs_pickled
            yield "runs an engine again that it released", self.check_release
            yield "refuses values and inputs that do not exist, with a message", self.refuses_to_run
            yield "stops runs when it is asked to", self.runs_stop
            yield "keeps runs within their limit of time", self.run_limit

    def _others(self) -> Iterator[tuple[str, Callable[[], None]]]:
        able = self.able
        if able.opens:
            yield "refuses files that are not engines, with a message", self.refuses_to_open
            if able.builds and able.runs:
                yield "opens an engine that it saved", self.opens
        if able.counts and able.builds and able.runs:
            yield "counts inferences", self.counts
        if able.forces:
            yield "refuses files that are not timing caches, with a message", self.refuses_caches
            if able.builds:
                yield "forces a tactic that it timed, in a copy of its timing cache", self.forces
        if able.explains and able.builds:
            yield from rule_checks(self.backend, self.model, lambda: self.engine)
        if able.reads:
            yield "refuses files that are none of its own, with a message", self.refuses_to_read
            if self.files:
                yield "reads files and does not write them", self.reads

    # --- what it says of itself --------------------------------------------------------------------------------------

    @functools.cached_property
    def _here(self) -> bool:
        try:
            return bool(self.backend.availability().ok and isinstance(self.able, Capabilities))
        except Exception:  # noqa: BLE001 - the first checks tell what is wrong
            return False

    @functools.cached_property
    def able(self) -> Capabilities:
        capabilities: Capabilities = self.backend.capabilities()
        return capabilities

    def availability(self) -> None:
        name: Any = getattr(self.backend, "name", None)
        assert_that(isinstance(name, str), f"name is {name!r}, and a text belongs there")
        assert_that(name, "name is empty")
        assert_that(name == name.strip(), f'name "{name}" has spaces around it')
        here = self.backend.availability()
        assert_that(
            isinstance(here, Availability),
            f"availability() gives {here!r}, and an Availability belongs there",
        )
        if here.ok:
            assert_that(here.version, "it is available in no version")
        else:
            assert_that(
                here.reason.rstrip().endswith("."),
                f'it is not available, and the reason is no sentence: "{here.reason}"',
            )

    def claims(self) -> None:
        able = self.able
        assert_that(
            isinstance(able, Capabilities), f"capabilities() gives {able!r}, and Capabilities belong there"
        )
        assert_that(
            able == self.backend.capabilities(), "capabilities() says something else when it is asked again"
        )
        for role, protocol in ROLES.items():
            if getattr(able, role):
                missing = lacking(self.backend, role)
                assert_that(
                    not missing, f"{role}=True, and of {protocol.__name__} it lacks {', '.join(missing)}"
                )
        assert_that(
            any(getattr(able, role) for role in ROLES),
            "it has no role: neither builds, runs, opens nor reads",
        )
        if able.builds and self._here:
            assert_that(able.targets, "builds=True, and there is no target")
            assert_that(able.precisions, "builds=True, and there is no precision")
        for each in able.targets:
            assert_that(isinstance(each, Target), f"target {each!r} is no Target")
        for one in able.precisions:
            assert_that(isinstance(one, Precision), f"precision {one!r} is no Precision")
        assert_that(
            not (able.forces and able.maker.tunes != "build"),
            f'forces=True, and its maker tunes "{able.maker.tunes}", not in the build',
        )

    # --- building ----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def model(self) -> Model:
        return tiny_model()

    @property
    def _target(self) -> Target:
        """Where what is built can also be run, if anywhere."""
        able = self.able
        return able.local if able.local in able.targets and able.local is not None else able.targets[0]

    def _build(self, model: Model | None = None, **choice: Any) -> Engine:
        limits = choice.pop("limits", Limits())
        progress = choice.pop("progress", Silent())
        variant = Variant.of(
            choice.pop("precision", "fp32"), target=choice.pop("target", self._target), **choice
        )
        # Its scales stand in the graph.
        variant = dataclasses.replace(variant, calibrator=None)
        request = BuildRequest(model or self.model, variant, limits, keep_plan=self.able.runs)
        engine: Engine = self.backend.build(request, progress)
        return engine

    @functools.cached_property
    def engine(self) -> Engine:
        return self._build()

    def builds(self) -> None:
        self._check_build(self.engine, self.model, self._target)
        origin_ids = {n for layer in self.engine.layers for n in layer.origins}
        strange = origin_ids - {n.id for n in self.model.nodes}
        assert_that(
            not strange, f"layers say that they are of nodes that the model does not have: {sorted(strange)}"
        )

    def builds_for(self, target: Target) -> None:
        self._check_build(self._build(target=target), self.model, target)

    def builds_in(self, precision: Precision) -> None:
        target = next((t for t in self.able.targets if t.refusal(precision) is None), None)
        if target is None:
            raise AssertionError(f'it claims "{precision}", which none of its targets has')
        model = product(precision)
        self._check_build(self._build(model, precision=precision, target=target), model, target)

    def _check_build(self, engine: Engine, model: Model, target: Target) -> None:
        check_engine(engine, model, target, backend_name=self.backend.name, able=self.able)

    def other_target(self) -> None:
        foreign_target = next(
            t for t in map(Target, ("cpu", "sm75", "npu", "gpu")) if t not in self.able.targets
        )
        try:
            engine = self._build(target=foreign_target)
        except RtlabError as error:
            check_message(error, VariantError, BuildError, Unavailable)
        else:
            assert_that(engine.target in self.able.targets, f'it says that it built for "{foreign_target}"')

    def unknown_operator(self) -> None:
        error = catch_error(lambda: self._build(make_unknown_op_model()), "it builds an unknown operator")
        check_message(error, BuildError)

    def build_stops(self) -> None:
        error = catch_error(
            lambda: self._build(progress=_AlwaysStopped()), "it builds although it was asked to stop"
        )
        assert_that(
            isinstance(error, Cancelled),
            f"asked to stop, it raises {describe_error(error)}, and Cancelled belongs there",
        )

    def build_limit(self) -> None:
        limit = Limits(seconds=1e-3)
        try:
            engine = self._build(limits=limit)
        except RtlabError as error:
            check_message(error, BuildError)
        else:
            assert_that(
                engine.seconds <= limit.seconds + _TICK,
                f"the build took {engine.seconds:g} s, and {limit.seconds:g} s was the limit",
            )

    def check_pickling(self) -> None:
        again = pickle.loads(pickle.dumps(self.engine))  # noqa: S301 - its own
        assert_that(again.layers == self.engine.layers, "its layers are others after pickling")
        assert_that(again.maker == self.engine.maker, "its maker is another after pickling")

    # --- running -----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def batch(self) -> dict[str, Any]:
        return {"x": np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)}

    def _profile(self, **more: Any) -> Profile:
        progress = more.pop("progress", Silent())
        settings = {"runs": _RUNS, "warmup": _WARMUP, **more}
        profile: Profile = self.backend.profile(self.engine, self.batch, progress, **settings)
        return profile

    def profiles(self) -> None:
        check_profile(self._profile(), self.engine, _RUNS, layered=self.able.times != "inferences")

    def budget(self) -> None:
        profile = self._profile(runs=_MANY, seconds=_BUDGET)
        assert_that(
            1 <= (profile.runs or 0) < _MANY, f"in a budget of {_BUDGET} s it reports {profile.runs} runs"
        )

    def check_merging(self) -> None:
        one, other = self._profile(), self._profile()
        both = one.merged(other)
        assert_that(both.runs == (one.runs or 0) + (other.runs or 0), "runs do not add up")
        assert_that(len(both.total) == len(one.total) + len(other.total), "times of inferences do not add up")

    def _outputs(self, engine: Engine | None = None, names: tuple[str, ...] = (), **more: Any) -> Outputs:
        outputs: Outputs = self.backend.outputs(engine or self.engine, self.batch, names, **more)
        return outputs

    def computes(self) -> None:
        self._check_outputs(self._outputs(), self.model.outputs)
        self._check_outputs(self._outputs(names=tuple(self.model.outputs)), self.model.outputs)

    def inner(self) -> None:
        value_names = self.backend.unfused(self.engine, self.batch, Silent())
        names = tuple(n for n in value_names if n in self.model.values)
        if names:
            self._check_outputs(self._outputs(names=names), names)
        self._check_outputs(self._outputs(), self.model.outputs)

    def _check_outputs(self, outputs: Outputs, names: Any) -> None:
        assert_that(set(names) == set(outputs), f"asked for {sorted(names)}, it gives {sorted(outputs)}")
        for name, reference in compute_reference(self.model, self.batch, tuple(names)).items():
            got = np.asarray(outputs[name])
            assert_that(
                got.shape == reference.shape,
                f'"{name}" has shape {got.shape}, and the model says {reference.shape}',
            )
            error = compute_relative_error(got, reference)
            assert_that(
                error <= self.tolerance,
                f'"{name}" is off by {error:.2g} of its largest magnitude, and {self.tolerance:g} is allowed',
            )

    def inputs_stay(self) -> None:
        before = {k: v.copy() for k, v in self.batch.items()}
        self._outputs()
        self._profile()
        for name, original in before.items():
            assert_that(np.array_equal(original, self.batch[name]), f'it writes into input "{name}"')

    def runs_pickled(self) -> None:
        again = pickle.loads(pickle.dumps(self.engine))  # noqa: S301 - its own
        try:
            self._check_outputs(self._outputs(again), self.model.outputs)
        finally:
            self.backend.release(again)

    def check_release(self) -> None:
        self._outputs()
        self.backend.release(self.engine)
        self.backend.release(self.engine)
        self._check_outputs(self._outputs(), self.model.outputs)

    def refuses_to_run(self) -> None:
        error = catch_error(
            lambda: self._outputs(names=("no such value",)), "it gives a value that there is not"
        )
        check_message(error, RunError)
        error = catch_error(
            lambda: self.backend.outputs(self.engine, {}), "it runs without an input that the model needs"
        )
        check_message(error, RunError)

    def runs_stop(self) -> None:
        for what, ask in (
            ("outputs()", lambda: self._outputs(progress=_AlwaysStopped())),
            ("profile()", lambda: self._profile(progress=_AlwaysStopped())),
        ):
            error = catch_error(ask, f"{what} goes on although it was asked to stop")
            assert_that(
                isinstance(error, Cancelled),
                f"asked to stop, {what} raises {describe_error(error)} in place of Cancelled",
            )

    def run_limit(self) -> None:
        """One run of a small network may be over before anybody looks; a million are not."""
        error = catch_error(
            lambda: self._profile(runs=_MANY, limit_s=_BUDGET),
            f"profile() claims {_MANY:,} runs in {_BUDGET} s, which was the limit",
        )
        check_message(error, RunError)

    # --- opening, counting, reading ----------------------------------------------------------------------------------

    def refuses_to_open(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            missing, other = Path(folder) / "missing.plan", Path(folder) / "other.plan"
            other.write_bytes(b"no engine at all" * 64)
            error = catch_error(lambda: self.backend.open_plan(missing), "it opens a file that is not there")
            check_message(error, ReadError, Unavailable)
            error = catch_error(lambda: self.backend.open_plan(other), "it opens a file that is no engine")
            check_message(error, ReadError, Unavailable, RunError)
            assert_that(
                other.read_bytes() == b"no engine at all" * 64, "it writes a file that it was given to read"
            )

    def opens(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "engine.plan"
            self.backend.save(self.engine, file)
            before = digest(file)
            again = self.backend.open_plan(file)
            assert_that(before == digest(file), "it writes a file that it was given to read")
        try:
            self._check_outputs(self._outputs(again), self.model.outputs)
        finally:
            self.backend.release(again)

    def counts(self) -> None:
        throughput = self.backend.throughput(self.engine, self.batch, Silent(), streams=1, seconds=_BUDGET)
        assert_that(math.isfinite(throughput.rate), "the rate is no number")
        assert_that(throughput.rate > 0, "nothing was finished")
        assert_that(throughput.batch == 1, f"it counts a batch of {throughput.batch}, and 1 was given")
        error = catch_error(
            lambda: self.backend.throughput(self.engine, self.batch, Silent(), streams=0),
            "it counts over no stream",
        )
        check_message(error, RunError)

    def refuses_caches(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            missing, other, copy = (Path(folder) / f"{n}.cache" for n in ("missing", "other", "copy"))
            other.write_bytes(b"no timing cache at all" * 64)
            for file, odd in ((missing, "that is not there"), (other, "that holds none")):
                ask = functools.partial(self.backend.remembered, file, ("0x1",))
                check_message(catch_error(ask, f"it says what a file holds {odd}"), ReadError)
                ask = functools.partial(self.backend.forced, file, copy, (Entry("0x1", 1, 1.0),))
                check_message(catch_error(ask, f"it edits a file {odd}"), ReadError)
            assert_that(not copy.exists(), "it writes a copy of what it refuses")

    def forces(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file, copy = Path(folder) / "timing.cache", Path(folder) / "copy.cache"
            options = BuildOptions.of(flags=[self.backend.flag], timing_cache=file)
            timed = {
                o.key: o.timed for o in self.backend.operators(self._build(options=options).log) if o.key
            }
            entries = self.backend.remembered(file, tuple(timed)) if timed else {}
            assert_that(
                set(entries) <= set(timed), f"asked for {sorted(timed)}, it reports {sorted(entries)}"
            )
            others = {k: [t for t in timed[k] if int(t.tactic, 0) != e.tactic] for k, e in entries.items()}
            key = next((k for k, tactics in others.items() if tactics), None)
            if key is None:
                # There was no choice in a network of ten nodes.
                return
            before, target_tactic = digest(file), int(others[key][0].tactic, 0)
            self.backend.forced(file, copy, (Entry(key, target_tactic, others[key][0].milliseconds),))
            assert_that(before == digest(file), "it writes a timing cache that it was given to read")
            now = self.backend.remembered(copy, (key,))[key].tactic
            assert_that(
                now == target_tactic, f"told to force tactic {target_tactic:#x}, its copy holds {now:#x}"
            )

    def refuses_to_read(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            kinds = [*self.files] or ["layers"]
            missing = {k: Path(folder) / f"missing-{k}" for k in kinds}
            check_message(
                catch_error(lambda: self.backend.read(missing), "it reads files that are not there"),
                ReadError,
            )
            odd = {k: Path(folder) / f"odd-{k}" for k in kinds}
            for path in odd.values():
                path.write_bytes(b"\x00no file of anybody\x00")
            check_message(
                catch_error(lambda: self.backend.read(odd), "it reads a file that does not exist"), ReadError
            )

    def reads(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            copies = {k: Path(folder) / p.name for k, p in self.files.items()}
            for kind, path in self.files.items():
                copies[kind].write_bytes(path.read_bytes())
            before = {k: digest(p) for k, p in copies.items()}
            recording = self.backend.read(copies)
            assert_that(
                before == {k: digest(p) for k, p in copies.items()},
                "it writes a file that it was given to read",
            )
            assert_that(
                {p.name for p in copies.values()} == {p.name for p in Path(folder).iterdir()},
                "it leaves files behind",
            )
        engine = recording.engine
        ids = {layer.id for layer in engine.layers}
        assert_that(len(ids) == len(engine.layers), "two layers have one id")
        if recording.profile is not None:
            strange = set(recording.profile.samples) - ids
            assert_that(not strange, f"it times layers that the engine does not have: {sorted(strange)}")
            assert_that(recording.profile.source, "the times do not say who measured them")
        again = pickle.loads(pickle.dumps(engine))  # noqa: S301 - its own
        assert_that(again.layers == engine.layers, "its layers are others after pickling")

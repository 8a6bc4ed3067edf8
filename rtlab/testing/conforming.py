"""What ``rtlab.core.protocols`` promises, as checks of a backend, each of which fails in words."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import hashlib
import math
import pickle
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from rtlab.core.engine import Engine
from rtlab.core.model import Model, wrap
from rtlab.core.progress import Silent
from rtlab.core.protocols import ROLES, Availability, Backend, BuildRequest, Capabilities, Limits, lacking
from rtlab.core.trace import Outputs, Profile
from rtlab.core.variant import Precision, Target, Variant
from rtlab.errors import BuildError, Cancelled, ReadError, RtlabError, RunError, Unavailable, VariantError
from rtlab.testing.fakes import tiny_model

#: Greatest error of a value in fp32, relative to its largest magnitude: sums in another order, or in TF32.
_TOLERANCE = 5e-3
#: Timed runs and untimed ones; as many as no budget suffices for; that budget, in seconds.
_RUNS, _WARMUP, _MANY, _BUDGET = 3, 1, 1_000_000, 0.5
#: Seconds within which somebody looks whether a limit is passed.
_TICK = 1.0
#: Element types of products that are typed by casts, and of those whose inputs are quantized, with their opset.
_CAST = {Precision.FP16: TensorProto.FLOAT16, Precision.BF16: TensorProto.BFLOAT16}
_QUANTIZED = {Precision.INT8: TensorProto.INT8, Precision.FP8: TensorProto.FLOAT8E4M3FN}
#: What was attempted, a colon, what was found, and what to do next, each a sentence.
_WORDS = re.compile(r"^[A-Z][^\n]*?: .+?[.?!)] .*[.?!)]$", re.DOTALL)


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
                f"it {self.name}: it raises {_named(error)}, which nothing promises"
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


class _Stopped(Silent):
    """Asks to stop from the beginning."""

    def stopped(self) -> bool:
        """Yes."""
        return True


class _Trial:
    """One backend under examination. Vendor calls are made by what is asked of it only."""

    def __init__(self, backend: Any, files: Mapping[str, Path], tolerance: float) -> None:
        self.backend, self.files, self.tolerance = backend, files, tolerance

    def checks(self) -> Iterator[tuple[str, Callable[[], None]]]:
        yield "says in words whether it works here", self.availability
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
                if precision in {Precision.FP32, *_CAST, *_QUANTIZED}:
                    yield f"builds {precision}", functools.partial(self.builds_in, precision)
            yield "never says that it built for a target that it does not have", self.other_target
            yield "refuses a model that it cannot compile, in words", self.unknown_operator
            yield "stops a build when it is asked to", self.build_stops
            yield "keeps a build within its limit of time", self.build_limit
            yield "builds engines that can be pickled", self.pickled

    def _running(self) -> Iterator[tuple[str, Callable[[], None]]]:
        if self.able.builds and self.able.runs:
            yield "times as many runs as it says", self.profiles
            yield "keeps to a budget of time", self.budget
            yield "times that can be merged", self.merged
            yield "computes what the model says", self.computes
            yield "tells inner values without changing them", self.inner
            yield "leaves its inputs as they are", self.inputs_stay
            yield "runs an engine that came from elsewhere", self.runs_pickled
            yield "runs an engine again that it released", self.released
            yield "refuses values and inputs that there are not, in words", self.refuses_to_run
            yield "stops runs when it is asked to", self.runs_stop
            yield "keeps runs within their limit of time", self.run_limit

    def _others(self) -> Iterator[tuple[str, Callable[[], None]]]:
        able = self.able
        if able.opens:
            yield "refuses files that are no engines, in words", self.refuses_to_open
            if able.builds and able.runs:
                yield "opens an engine that it saved", self.opens
        if able.counts and able.builds and able.runs:
            yield "counts inferences", self.counts
        if able.reads:
            yield "refuses files that are none of its own, in words", self.refuses_to_read
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
        found: Capabilities = self.backend.capabilities()
        return found

    def availability(self) -> None:
        name: Any = getattr(self.backend, "name", None)
        _hold(isinstance(name, str), f"name is {name!r}, and a text belongs there")
        _hold(name, "name is empty")
        _hold(name == name.strip(), f'name "{name}" has spaces around it')
        here = self.backend.availability()
        _hold(
            isinstance(here, Availability),
            f"availability() gives {here!r}, and an Availability belongs there",
        )
        if here.ok:
            _hold(here.version, "it is available in no version")
        else:
            _hold(
                here.reason.rstrip().endswith("."),
                f'it is not available, and the reason is no sentence: "{here.reason}"',
            )

    def claims(self) -> None:
        able = self.able
        _hold(isinstance(able, Capabilities), f"capabilities() gives {able!r}, and Capabilities belong there")
        _hold(
            able == self.backend.capabilities(), "capabilities() says something else when it is asked again"
        )
        for role, protocol in ROLES.items():
            if getattr(able, role):
                missing = lacking(self.backend, role)
                _hold(not missing, f"{role}=True, and of {protocol.__name__} it lacks {', '.join(missing)}")
        _hold(
            any(getattr(able, role) for role in ROLES),
            "it has no role: neither builds, runs, opens nor reads",
        )
        if able.builds and self._here:
            _hold(able.targets, "builds=True, and there is no target")
            _hold(able.precisions, "builds=True, and there is no precision")
        for each in able.targets:
            _hold(isinstance(each, Target), f"target {each!r} is no Target")
        for one in able.precisions:
            _hold(isinstance(one, Precision), f"precision {one!r} is no Precision")
        _hold(
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
        self._built(self.engine, self.model, self._target)
        told = {n for layer in self.engine.layers for n in layer.origins}
        strange = told - {n.id for n in self.model.nodes}
        _hold(
            not strange, f"layers say that they are of nodes that the model does not have: {sorted(strange)}"
        )

    def builds_for(self, target: Target) -> None:
        self._built(self._build(target=target), self.model, target)

    def builds_in(self, precision: Precision) -> None:
        target = next((t for t in self.able.targets if t.refusal(precision) is None), None)
        if target is None:
            raise AssertionError(f'it claims "{precision}", which none of its targets has')
        model = _product(precision)
        self._built(self._build(model, precision=precision, target=target), model, target)

    def _built(self, engine: Engine, model: Model, target: Target) -> None:
        _hold(
            isinstance(engine, Engine), f"build() gives {type(engine).__name__}, and an Engine belongs there"
        )
        _hold(engine.backend == self.backend.name, f'the engine says that "{engine.backend}" made it')
        _hold(engine.target == target, f'the engine is for "{engine.target}", and "{target}" was asked for')
        _hold(engine.version, "the engine is of no version")
        _hold(
            engine.maker == self.able.maker,
            f"its maker is {engine.maker}, and that claimed {self.able.maker}",
        )
        _dated(engine.built, "the build")
        ids = [layer.id for layer in engine.layers]
        _hold(ids, "the engine has no layers")
        _hold(len(ids) == len(set(ids)), "two layers have one id")
        places = [layer.index for layer in engine.layers]
        _hold(places == sorted(places), "layers are not in the order of their index")
        read, made = [t.name for t in engine.inputs], [t.name for t in engine.outputs]
        _hold(set(read) == set(model.inputs), f"its inputs are {read}, and those of the model {model.inputs}")
        _hold(
            set(made) == set(model.outputs), f"its outputs are {made}, and those of the model {model.outputs}"
        )
        reports = engine.maker.reports
        _hold(
            "memory" in reports or not engine.totals, f"it reports no memory, and tells {dict(engine.totals)}"
        )
        _hold(
            "streams" in reports or not any(y.stream for y in engine.layers),
            "it reports no streams, and tells some",
        )
        _hold(
            "tactics" in reports or not any(y.tactic for y in engine.layers),
            "it reports no tactics, and tells some",
        )

    def other_target(self) -> None:
        wanted = next(t for t in map(Target, ("cpu", "sm75", "npu", "gpu")) if t not in self.able.targets)
        try:
            engine = self._build(target=wanted)
        except RtlabError as error:
            _in_words(error, VariantError, BuildError, Unavailable)
        else:
            _hold(engine.target in self.able.targets, f'it says that it built for "{wanted}"')

    def unknown_operator(self) -> None:
        node = helper.make_node("Nobody", ["x"], ["y"], name="odd", domain="of.nowhere")
        value = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT, shape=[1, 4])
        graph = helper.make_graph([node], "odd", [value("x")], [value("y")])
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("of.nowhere", 1)]
        odd = wrap(helper.make_model(graph, opset_imports=imports, ir_version=9), name="odd")
        error = _raised(lambda: self._build(odd), "it builds an operator that nobody knows")
        _in_words(error, BuildError)

    def build_stops(self) -> None:
        error = _raised(lambda: self._build(progress=_Stopped()), "it builds although it was asked to stop")
        _hold(
            isinstance(error, Cancelled),
            f"asked to stop, it raises {_named(error)}, and Cancelled belongs there",
        )

    def build_limit(self) -> None:
        limit = Limits(seconds=1e-3)
        try:
            engine = self._build(limits=limit)
        except RtlabError as error:
            _in_words(error, BuildError)
        else:
            _hold(
                engine.seconds <= limit.seconds + _TICK,
                f"the build took {engine.seconds:g} s, and {limit.seconds:g} s was the limit",
            )

    def pickled(self) -> None:
        again = pickle.loads(pickle.dumps(self.engine))  # noqa: S301 - its own
        _hold(again.layers == self.engine.layers, "its layers are others after pickling")
        _hold(again.maker == self.engine.maker, "its maker is another after pickling")

    # --- running -----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def batch(self) -> dict[str, Any]:
        return {"x": np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)}

    def _profile(self, **more: Any) -> Profile:
        progress = more.pop("progress", Silent())
        given = {"runs": _RUNS, "warmup": _WARMUP, **more}
        found: Profile = self.backend.profile(self.engine, self.batch, progress, **given)
        return found

    def profiles(self) -> None:
        found = self._profile()
        _hold(
            isinstance(found, Profile), f"profile() gives {type(found).__name__}, and a Profile belongs there"
        )
        _hold(found.source, "the times do not say who measured them")
        _hold(found.device, "the times do not say on which device")
        _dated(found.taken, "the profile")
        _hold((found.runs or 0) >= _RUNS, f"{_RUNS} runs were asked for, and {found.runs} are told")
        _hold(
            len(found.total) >= _RUNS,
            f"{_RUNS} runs were asked for, and {len(found.total)} are timed as a whole",
        )
        _hold(
            len(found.total) >= (found.runs or 0),
            f"it tells of {found.runs} runs, and has times of {len(found.total)} inferences",
        )
        _hold(np.isfinite(found.total).all(), "a time of an inference is no number")
        _hold((np.asarray(found.total) > 0).all(), "an inference takes no time")
        strange = set(found.samples) - {y.id for y in self.engine.layers}
        _hold(not strange, f"it times layers that the engine does not have: {sorted(strange)}")
        if self.able.times == "inferences":
            _hold(not found.samples, 'it times "inferences" only, and tells times of layers')
            return
        _hold(found.samples, 'it times "layers", and tells of none')
        for layer, times in found.samples.items():
            _hold(
                len(times) == found.runs,
                f'"{layer}" has {len(times)} times, and there were {found.runs} runs',
            )
            _hold(np.isfinite(times).all(), f'a time of "{layer}" is no number')
            _hold((np.asarray(times) >= 0).all(), f'"{layer}" takes less than no time')

    def budget(self) -> None:
        found = self._profile(runs=_MANY, seconds=_BUDGET)
        _hold(1 <= (found.runs or 0) < _MANY, f"in a budget of {_BUDGET} s it tells of {found.runs} runs")

    def merged(self) -> None:
        one, other = self._profile(), self._profile()
        both = one.merged(other)
        _hold(both.runs == (one.runs or 0) + (other.runs or 0), "runs do not add up")
        _hold(len(both.total) == len(one.total) + len(other.total), "times of inferences do not add up")

    def _outputs(self, engine: Engine | None = None, names: tuple[str, ...] = (), **more: Any) -> Outputs:
        found: Outputs = self.backend.outputs(engine or self.engine, self.batch, names, **more)
        return found

    def computes(self) -> None:
        self._same(self._outputs(), self.model.outputs)
        self._same(self._outputs(names=tuple(self.model.outputs)), self.model.outputs)

    def inner(self) -> None:
        told = self.backend.unfused(self.engine, self.batch, Silent())
        names = tuple(n for n in told if n in self.model.values)
        if names:
            self._same(self._outputs(names=names), names)
        self._same(self._outputs(), self.model.outputs)

    def _same(self, found: Outputs, names: Any) -> None:
        _hold(set(names) == set(found), f"asked for {sorted(names)}, it gives {sorted(found)}")
        for name, wanted in _expected(self.model, self.batch, tuple(names)).items():
            got = np.asarray(found[name])
            _hold(
                got.shape == wanted.shape,
                f'"{name}" has shape {got.shape}, and the model says {wanted.shape}',
            )
            scale = float(np.abs(wanted).max(initial=0)) or 1.0
            error = float(np.abs(got.astype(np.float64) - wanted.astype(np.float64)).max(initial=0)) / scale
            _hold(
                error <= self.tolerance,
                f'"{name}" is off by {error:.2g} of its largest magnitude, and {self.tolerance:g} is allowed',
            )

    def inputs_stay(self) -> None:
        before = {k: v.copy() for k, v in self.batch.items()}
        self._outputs()
        self._profile()
        for name, kept in before.items():
            _hold(np.array_equal(kept, self.batch[name]), f'it writes into input "{name}"')

    def runs_pickled(self) -> None:
        again = pickle.loads(pickle.dumps(self.engine))  # noqa: S301 - its own
        try:
            self._same(self._outputs(again), self.model.outputs)
        finally:
            self.backend.release(again)

    def released(self) -> None:
        self._outputs()
        self.backend.release(self.engine)
        self.backend.release(self.engine)
        self._same(self._outputs(), self.model.outputs)

    def refuses_to_run(self) -> None:
        error = _raised(lambda: self._outputs(names=("no such value",)), "it gives a value that there is not")
        _in_words(error, RunError)
        error = _raised(
            lambda: self.backend.outputs(self.engine, {}), "it runs without an input that the model needs"
        )
        _in_words(error, RunError)

    def runs_stop(self) -> None:
        for what, ask in (
            ("outputs()", lambda: self._outputs(progress=_Stopped())),
            ("profile()", lambda: self._profile(progress=_Stopped())),
        ):
            error = _raised(ask, f"{what} goes on although it was asked to stop")
            _hold(
                isinstance(error, Cancelled),
                f"asked to stop, {what} raises {_named(error)} in place of Cancelled",
            )

    def run_limit(self) -> None:
        """One run of a small network may be over before anybody looks; a million are not."""
        error = _raised(
            lambda: self._profile(runs=_MANY, limit_s=_BUDGET),
            f"profile() claims {_MANY:,} runs in {_BUDGET} s, which was the limit",
        )
        _in_words(error, RunError)

    # --- opening, counting, reading ----------------------------------------------------------------------------------

    def refuses_to_open(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            missing, other = Path(folder) / "missing.plan", Path(folder) / "other.plan"
            other.write_bytes(b"no engine at all" * 64)
            error = _raised(lambda: self.backend.open_plan(missing), "it opens a file that is not there")
            _in_words(error, ReadError, Unavailable)
            error = _raised(lambda: self.backend.open_plan(other), "it opens a file that is no engine")
            _in_words(error, ReadError, Unavailable, RunError)
            _hold(
                other.read_bytes() == b"no engine at all" * 64, "it writes a file that it was given to read"
            )

    def opens(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "engine.plan"
            self.backend.save(self.engine, file)
            before = _digest(file)
            again = self.backend.open_plan(file)
            _hold(before == _digest(file), "it writes a file that it was given to read")
        try:
            self._same(self._outputs(again), self.model.outputs)
        finally:
            self.backend.release(again)

    def counts(self) -> None:
        found = self.backend.throughput(self.engine, self.batch, Silent(), streams=1, seconds=_BUDGET)
        _hold(math.isfinite(found.rate), "the rate is no number")
        _hold(found.rate > 0, "nothing was finished")
        _hold(found.batch == 1, f"it counts a batch of {found.batch}, and 1 was given")
        error = _raised(
            lambda: self.backend.throughput(self.engine, self.batch, Silent(), streams=0),
            "it counts over no stream",
        )
        _in_words(error, RunError)

    def refuses_to_read(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            kinds = [*self.files] or ["layers"]
            missing = {k: Path(folder) / f"missing-{k}" for k in kinds}
            _in_words(
                _raised(lambda: self.backend.read(missing), "it reads files that are not there"), ReadError
            )
            odd = {k: Path(folder) / f"odd-{k}" for k in kinds}
            for path in odd.values():
                path.write_bytes(b"\x00no file of anybody\x00")
            _in_words(_raised(lambda: self.backend.read(odd), "it reads what nobody wrote"), ReadError)

    def reads(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            copies = {k: Path(folder) / p.name for k, p in self.files.items()}
            for kind, path in self.files.items():
                copies[kind].write_bytes(path.read_bytes())
            before = {k: _digest(p) for k, p in copies.items()}
            found = self.backend.read(copies)
            _hold(
                before == {k: _digest(p) for k, p in copies.items()},
                "it writes a file that it was given to read",
            )
            _hold(
                {p.name for p in copies.values()} == {p.name for p in Path(folder).iterdir()},
                "it leaves files behind",
            )
        engine = found.engine
        ids = {layer.id for layer in engine.layers}
        _hold(len(ids) == len(engine.layers), "two layers have one id")
        if found.profile is not None:
            strange = set(found.profile.samples) - ids
            _hold(not strange, f"it times layers that the engine does not have: {sorted(strange)}")
            _hold(found.profile.source, "the times do not say who measured them")
        again = pickle.loads(pickle.dumps(engine))  # noqa: S301 - its own
        _hold(again.layers == engine.layers, "its layers are others after pickling")


def _hold(held: object, otherwise: str) -> None:
    """An assertion that stands with optimization, too."""
    if not held:
        raise AssertionError(otherwise)


def _dated(when: datetime.datetime | None, what: str) -> None:
    _hold(when is not None, f"{what} has no date")
    _hold(when is not None and when.tzinfo is not None, f"the date of {what} has no time zone")


def _raised(ask: Callable[[], object], otherwise: str) -> Exception:
    """What a call raises."""
    try:
        ask()
    except Exception as error:  # noqa: BLE001 - of which kind is what is looked at
        return error
    raise AssertionError(otherwise)


def _in_words(error: Exception, *kinds: type[RtlabError]) -> None:
    """Fail unless an error is of a promised kind and has three parts."""
    wanted = " or ".join(k.__name__ for k in kinds)
    _hold(isinstance(error, kinds), f"it raises {_named(error)}, and {wanted} is promised")
    _hold(
        _WORDS.search(str(error)),
        f'"{error}" lacks a part: what was attempted, a colon, what was found, and a sentence on what to do next',
    )


def _named(error: Exception) -> str:
    return f"{type(error).__name__} ({error})"


def _digest(path: Path) -> tuple[str, int]:
    return hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns


@functools.lru_cache(maxsize=4)
def _evaluator(model: Model, names: tuple[str, ...]) -> ReferenceEvaluator:
    proto = onnx.load_from_string(model.bytes())
    have = {o.name for o in proto.graph.output}
    proto.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in names if n not in have)
    return ReferenceEvaluator(proto)


def _expected(model: Model, batch: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """What ONNX's own evaluator computes."""
    return dict(zip(names, _evaluator(model, names).run(list(names), dict(batch)), strict=True))


def _product(precision: Precision) -> Model:
    """A product whose graph expresses a precision: by casts, or by pairs of QuantizeLinear and DequantizeLinear."""
    size, node = 64, helper.make_node
    weights = [numpy_helper.from_array(np.eye(size, dtype=np.float32), "w")]
    nodes = [node("MatMul", ["x", "w"], ["y"], name="product")]
    if (kind := _CAST.get(precision)) is not None:
        nodes = [
            node("Cast", ["x"], ["x_cast"], name="to_x", to=kind),
            node("Cast", ["w"], ["w_cast"], name="to_w", to=kind),
            node("MatMul", ["x_cast", "w_cast"], ["y_cast"], name="product"),
            node("Cast", ["y_cast"], ["y"], name="back", to=TensorProto.FLOAT),
        ]
    elif (kind := _QUANTIZED.get(precision)) is not None:
        weights += [
            numpy_helper.from_array(np.array(0.05, np.float32), "scale"),
            helper.make_tensor("zero", kind, [], [0]),
        ]
        nodes = [
            op
            for v in ("x", "w")
            for op in (
                node("QuantizeLinear", [v, "scale", "zero"], [f"{v}_q"], name=f"{v}/Q"),
                node("DequantizeLinear", [f"{v}_q", "scale", "zero"], [f"{v}_dq"], name=f"{v}/DQ"),
            )
        ]
        nodes.append(node("MatMul", ["x_dq", "w_dq"], ["y"], name="product"))
    value = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT, shape=[size, size])
    graph = helper.make_graph(nodes, f"product in {precision}", [value("x")], [value("y")], weights)
    return wrap(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), name="product"
    )

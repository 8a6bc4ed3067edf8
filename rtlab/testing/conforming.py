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

from rtlab.core.buildlog import Entry
from rtlab.core.engine import Engine
from rtlab.core.model import Model, wrap
from rtlab.core.options import BuildOptions
from rtlab.core.precision import compute_relative_error
from rtlab.core.progress import Silent
from rtlab.core.protocols import (
    ROLES,
    Availability,
    Backend,
    BuildRequest,
    Capabilities,
    Explainer,
    Limits,
    Progress,
    Ruled,
    lacking,
)
from rtlab.core.trace import Outputs, Profile
from rtlab.core.variant import Precision, Target, Variant
from rtlab.errors import BuildError, Cancelled, ReadError, RtlabError, RunError, Unavailable, VariantError
from rtlab.testing.fakes import tiny_model

#: Element types of products that are typed by casts, and of those whose inputs are quantized, with their opset.
CAST = {Precision.FP16: TensorProto.FLOAT16, Precision.BF16: TensorProto.BFLOAT16}
QUANTIZED = {Precision.INT8: TensorProto.INT8, Precision.FP8: TensorProto.FLOAT8E4M3FN}
#: Those of weights in four bits, how many share a scale, and the first opset with the type.
STORED = {Precision.INT4: (TensorProto.INT4, 64, 21), Precision.FP4: (TensorProto.FLOAT4E2M1, 16, 23)}


@functools.lru_cache(maxsize=4)
def _evaluator(model: Model, names: tuple[str, ...]) -> ReferenceEvaluator:
    proto = onnx.load_from_string(model.bytes())
    have = {o.name for o in proto.graph.output}
    proto.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in names if n not in have)
    return ReferenceEvaluator(proto)


def compute_reference(model: Model, batch: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """What ONNX's own evaluator computes."""
    return dict(zip(names, _evaluator(model, names).run(list(names), dict(batch)), strict=True))


def product(precision: Precision) -> Model:
    """A product whose graph expresses a precision.

    By casts, by pairs of QuantizeLinear and DequantizeLinear, or by weights that are stored in four bits, with a scale
    for each block. A scale of FP4 is in FP8, and has one of its own. FP32 and TF32 are in no graph.
    """
    size, opset, node = 64, 19, helper.make_node
    weights = [numpy_helper.from_array(np.eye(size, dtype=np.float32), "w")]
    nodes = [node("MatMul", ["x", "w"], ["y"], name="product")]
    if (kind := CAST.get(precision)) is not None:
        nodes = [
            node("Cast", ["x"], ["x_cast"], name="to_x", to=kind),
            node("Cast", ["w"], ["w_cast"], name="to_w", to=kind),
            node("MatMul", ["x_cast", "w_cast"], ["y_cast"], name="product"),
            node("Cast", ["y_cast"], ["y"], name="back", to=TensorProto.FLOAT),
        ]
    elif (kind := QUANTIZED.get(precision)) is not None:
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
    elif precision in STORED:
        kind, block, opset = STORED[precision]
        narrow = TensorProto.FLOAT8E4M3FN if precision is Precision.FP4 else TensorProto.FLOAT
        count = size // block
        weights = [
            helper.make_tensor("w", kind, [size, size], np.eye(size).ravel()),
            helper.make_tensor("scale", narrow, [count, size], np.ones(count * size)),
            numpy_helper.from_array(np.array(0.05, np.float32), "whole"),
        ]
        nodes = [
            node("DequantizeLinear", ["w", "scale"], ["w_dq"], name="w/DQ", axis=0, block_size=block),
            node("MatMul", ["x", "w_dq"], ["y"], name="product"),
        ]
        if precision is Precision.FP4:
            nodes[0].input[1] = "scale_dq"
            nodes.insert(0, node("DequantizeLinear", ["scale", "whole"], ["scale_dq"], name="scale/DQ"))
        else:
            del weights[-1]
    value = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT, shape=[size, size])
    graph = helper.make_graph(nodes, f"product in {precision}", [value("x")], [value("y")], weights)
    imports = [helper.make_opsetid("", opset)]
    version = helper.find_min_ir_version_for(imports)
    return wrap(helper.make_model(graph, opset_imports=imports, ir_version=version), name="product")


def make_unknown_op_model() -> Model:
    """A model of two nodes, the first of an operator in a domain that no compiler has."""
    nodes = [
        helper.make_node("Nobody", ["x"], ["y"], name="odd", domain="of.nowhere"),
        helper.make_node("Relu", ["y"], ["z"], name="behind"),
    ]
    value = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT, shape=[1, 4])
    graph = helper.make_graph(nodes, "odd", [value("x")], [value("z")])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("of.nowhere", 1)]
    return wrap(helper.make_model(graph, opset_imports=imports, ir_version=9), name="odd")


#: Greatest error of a value in fp32, relative to its largest magnitude: sums in another order, or in TF32.
_TOLERANCE = 5e-3
#: Timed runs and untimed ones; as many as no budget suffices for; that budget, in seconds.
_RUNS, _WARMUP, _MANY, _BUDGET = 3, 1, 1_000_000, 0.5
#: Seconds between two looks whether a limit is passed.
_TICK = 1.0
#: What a check of files says that fails.
_WRITES = "it writes a file that it was given to read"
#: A message: what was attempted, a colon, what was found, and what to do next, each a sentence.
_MESSAGE = re.compile(r"^[A-Z][^\n]*?: .+?[.?!)] .*[.?!)]$", re.DOTALL)

_Checks = Iterator[tuple[str, Callable[[], None]]]


@dataclasses.dataclass(frozen=True)
class Check:
    """One promise of a backend. A call tries it, and raises ``AssertionError`` in words where it does not hold."""

    name: str
    action: Callable[[], None] = dataclasses.field(repr=False)

    def __call__(self) -> None:
        """Try it."""
        try:
            self.action()
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(
                f"it {self.name}: it raises {_describe_error(error)}, which nothing promises"
            ) from error

    def __str__(self) -> str:
        return self.name


def conformance(
    backend: Backend, *, files: Mapping[str, str | Path] | None = None, tolerance: float = _TOLERANCE
) -> tuple[Check, ...]:
    """The checks that apply to a backend: each capability that it claims is tried, on a network of ten nodes.

    Where it is not available, only what it says of itself is checked.

    Args:
        backend: An object that follows ``rtlab.core.protocols``.
        files: For a ``Reader``, files of one engine by kind, as ``read`` takes them, of which copies are read. Without
            them, only what it refuses is checked.
        tolerance: Greatest error of values in fp32 beside ONNX's reference evaluator, relative to the largest
            magnitude of each value.

    Returns:
        Checks to be called, in an order in which a failure explains those after it.
    """
    trial = _Trial(backend, {k: Path(p) for k, p in (files or {}).items()}, tolerance)
    return tuple(Check(name, action) for name, action in trial.checks())


def _check(condition: object, otherwise: str) -> None:
    """An assertion that ``python -O`` keeps."""
    if not condition:
        raise AssertionError(otherwise)


def _check_type(value: object, kind: type, call: str) -> None:
    _check(isinstance(value, kind), f"{call} gives {value!r}, and no {kind.__name__}")


def _check_date(date: datetime.datetime | None, what: str) -> None:
    if date is None:
        raise AssertionError(f"{what} has no date")
    _check(date.tzinfo is not None, f"the date of {what} has no time zone")


def _expect_error(call: Callable[[], object], otherwise: str, *kinds: type[RtlabError]) -> None:
    """Fail unless a call raises one of the promised errors, with a message of three parts."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - its kind is what is checked
        _check_message(error, *kinds)
    else:
        raise AssertionError(otherwise)


def _check_message(error: Exception, *kinds: type[RtlabError]) -> None:
    kind_names = " or ".join(k.__name__ for k in kinds)
    _check(isinstance(error, kinds), f"it raises {_describe_error(error)}, and {kind_names} is promised")
    _check(
        _MESSAGE.search(str(error)),
        f'"{error}" lacks a part: what was attempted, a colon, what was found, and a sentence on what to do next',
    )


def _expect_cancelled(call: Callable[[], object], what: str) -> None:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - its kind is what is checked
        _check(
            isinstance(error, Cancelled),
            f"asked to stop, {what} raises {_describe_error(error)}, and Cancelled belongs there",
        )
    else:
        raise AssertionError(f"{what} goes on although it was asked to stop")


def _describe_error(error: Exception) -> str:
    return f"{type(error).__name__} ({error})"


def _digest(path: Path) -> tuple[str, int]:
    """Changes with a file's content, and when it is written."""
    return hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns


def _create_stopped() -> Progress:
    """Progress that asks to stop from the beginning."""
    progress = Silent()
    progress.cancel()
    return progress


class _Trial:
    """One backend under examination; each check calls no more of it than it is about."""

    def __init__(self, backend: Any, files: Mapping[str, Path], tolerance: float) -> None:
        self.backend, self.files, self.tolerance = backend, files, tolerance

    def checks(self) -> _Checks:
        yield "says whether it works here", self.availability
        yield "says what it can do, and has the methods for it", self.claims
        if not self._here:
            return
        able = self.able
        if able.builds:
            yield from self._builder_checks()
            if able.runs:
                yield from self._runner_checks()
        if able.opens:
            yield "refuses files that are not engines, with a message", self.refuses_to_open
        if able.forces:
            yield "refuses files that are not timing caches, with a message", self.refuses_caches
            if able.builds:
                yield "forces a tactic that it timed, in a copy of its timing cache", self.forces
        if able.explains and able.builds:
            yield (
                "tells of two nodes what its engines show, with a rule and its source",
                lambda: check_rules(self.backend, self.model, self.engine),
            )
            yield "refuses to tell of a model that it cannot compile, with a message", self.refuses_to_explain
        if able.reads:
            yield "refuses files that are none of its own, with a message", self.refuses_to_read
        if able.reads and self.files:
            yield "reads files and does not write them", self.reads

    def _builder_checks(self) -> _Checks:
        yield "builds for its default target", self.builds
        for target in self.able.targets[1:]:
            yield f"builds for {target}", functools.partial(self.builds_for, target)
        for precision in self.able.precisions:
            yield f"builds {precision}", functools.partial(self.builds_in, precision)
        yield "never says that it built for a target that it does not have", self.other_target
        yield "refuses a model that it cannot compile, with a message", self.unknown_operator
        yield "stops a build when it is asked to", self.build_stops
        yield "keeps a build within its limit of time", self.build_limit

    def _runner_checks(self) -> _Checks:
        yield "times as many runs as it says", self.profiles
        yield "keeps to a budget of time", self.budget
        yield "computes what the model says", self.computes
        yield "tells inner values without changing them", self.inner
        yield "leaves its inputs as they are", self.inputs_stay
        yield "runs an engine that came from elsewhere", self.runs_pickled
        yield "runs an engine again that it released", self.runs_released
        yield "refuses values and inputs that do not exist, with a message", self.refuses_to_run
        yield "stops runs when it is asked to", self.runs_stop
        yield "keeps runs within their limit of time", self.run_limit
        if self.able.opens:
            yield "opens an engine that it saved", self.opens
        if self.able.counts:
            yield "counts inferences", self.counts

    # --- what it says of itself --------------------------------------------------------------------------------------

    @functools.cached_property
    def _here(self) -> bool:
        try:
            return bool(self.backend.availability().ok and isinstance(self.able, Capabilities))
        except Exception:  # noqa: BLE001 - the first checks say what is wrong
            return False

    @functools.cached_property
    def able(self) -> Capabilities:
        capabilities: Capabilities = self.backend.capabilities()
        return capabilities

    def availability(self) -> None:
        name: Any = getattr(self.backend, "name", None)
        _check(isinstance(name, str), f"name is {name!r}, and a text belongs there")
        _check(name, "name is empty")
        _check(name == name.strip(), f'name "{name}" has spaces around it')
        here = self.backend.availability()
        _check_type(here, Availability, "availability()")
        is_reason = here.ok or here.reason.rstrip().endswith(".")
        _check(here.version or not here.ok, "it is available in no version")
        _check(is_reason, f'it is not available, and the reason is no sentence: "{here.reason}"')

    def claims(self) -> None:
        able = self.able
        _check_type(able, Capabilities, "capabilities()")
        _check(able == self.backend.capabilities(), "capabilities() says something else when asked again")
        roles = [role for role in ROLES if getattr(able, role)]
        _check(roles, "it has no role: neither builds, runs, opens nor reads")
        for role in roles:
            missing = ", ".join(lacking(self.backend, role))
            _check(not missing, f"{role}=True, and of {ROLES[role].__name__} it lacks {missing}")
        if able.builds and self._here:
            _check(able.targets, "builds=True, and there is no target")
            _check(able.precisions, "builds=True, and there is no precision")
        for choices, kind in ((able.targets, Target), (able.precisions, Precision)):
            for choice in choices:
                _check(isinstance(choice, kind), f"{choice!r} is no {kind.__name__}")
        tunes = able.maker.tunes
        _check(tunes == "build" or not able.forces, f'forces=True, and its maker tunes "{tunes}"')

    # --- building ----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def model(self) -> Model:
        return tiny_model()

    @property
    def _target(self) -> Target:
        """Where what is built can also be run, if anywhere."""
        local, targets = self.able.local, self.able.targets
        return local if local in targets and local is not None else targets[0]

    def _build(
        self,
        model: Model | None = None,
        *,
        precision: str = "fp32",
        target: Target | None = None,
        limits: Limits | None = None,
        progress: Progress | None = None,
        options: BuildOptions | None = None,
    ) -> Engine:
        variant = Variant.of(precision, target=target or self._target, options=options)
        # Its scales stand in the graph.
        variant = dataclasses.replace(variant, calibrator=None)
        request = BuildRequest(model or self.model, variant, limits or Limits(), keep_plan=self.able.runs)
        engine: Engine = self.backend.build(request, progress or Silent())
        return engine

    @functools.cached_property
    def engine(self) -> Engine:
        return self._build()

    def builds(self) -> None:
        self._check_engine(self.engine, self.model, self._target)
        strange = {n for y in self.engine.layers for n in y.origins} - {n.id for n in self.model.nodes}
        _check(not strange, f"layers are of nodes that the model does not have: {sorted(strange)}")

    def builds_for(self, target: Target) -> None:
        self._check_engine(self._build(target=target), self.model, target)

    def builds_in(self, precision: Precision) -> None:
        target = next((t for t in self.able.targets if t.refusal(precision) is None), None)
        if target is None:
            raise AssertionError(f'it claims "{precision}", which none of its targets has')
        model = product(precision)
        self._check_engine(self._build(model, precision=precision, target=target), model, target)

    def _check_engine(self, engine: Engine, model: Model, target: Target) -> None:
        """Fail unless an engine is that of a model and a target, as this backend builds them."""
        _check_type(engine, Engine, "build()")
        maker = engine.maker
        _check(engine.backend == self.backend.name, f'the engine says that "{engine.backend}" made it')
        _check(engine.target == target, f'the engine is for "{engine.target}", and "{target}" was asked for')
        _check(engine.version, "the engine is of no version")
        _check(maker == self.able.maker, f"its maker is {maker}, and that claimed {self.able.maker}")
        _check_date(engine.built, "the build")
        ids, indices = [y.id for y in engine.layers], [y.index for y in engine.layers]
        _check(ids, "the engine has no layers")
        _check(len(ids) == len(set(ids)), "two layers have one id")
        _check(indices == sorted(indices), "layers are not in the order of their index")
        for what in ("inputs", "outputs"):
            names, expected = [t.name for t in getattr(engine, what)], getattr(model, what)
            _check(set(names) == set(expected), f"its {what} are {names}, and the model's {expected}")
        streams, tactics = any(y.stream for y in engine.layers), any(y.tactic for y in engine.layers)
        for fact, has in (("memory", engine.totals), ("streams", streams), ("tactics", tactics)):
            _check(fact in maker.reports or not has, f"it reports no {fact}, and tells some")

    def other_target(self) -> None:
        known = self.able.targets
        foreign_target = next(t for t in map(Target, ("cpu", "sm75", "npu", "gpu")) if t not in known)
        try:
            engine = self._build(target=foreign_target)
        except RtlabError as error:
            _check_message(error, VariantError, BuildError, Unavailable)
        else:
            _check(engine.target in known, f'it says that it built for "{foreign_target}"')

    def unknown_operator(self) -> None:
        model = make_unknown_op_model()
        _expect_error(lambda: self._build(model), "it builds an unknown operator", BuildError)

    def build_stops(self) -> None:
        _expect_cancelled(lambda: self._build(progress=_create_stopped()), "build()")

    def build_limit(self) -> None:
        limit = Limits(seconds=1e-3)
        try:
            seconds = self._build(limits=limit).seconds
        except RtlabError as error:
            _check_message(error, BuildError)
        else:
            is_within = seconds <= limit.seconds + _TICK
            _check(is_within, f"the build took {seconds:g} s, and {limit.seconds:g} s was the limit")

    # --- running -----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def batch(self) -> dict[str, Any]:
        return {"x": np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)}

    def _profile(self, *, progress: Progress | None = None, **more: Any) -> Profile:
        settings = {"runs": _RUNS, "warmup": _WARMUP, **more}
        profile: Profile = self.backend.profile(self.engine, self.batch, progress or Silent(), **settings)
        return profile

    def profiles(self) -> None:
        """As many runs as were asked for, of whole inferences and, where layers are timed, of each layer."""
        profile = self._profile()
        _check_type(profile, Profile, "profile()")
        _check(profile.source, "the times do not say who measured them")
        _check(profile.device, "the times do not say on which device")
        _check_date(profile.taken, "the profile")
        total, samples, runs = np.asarray(profile.total), profile.samples, profile.runs or 0
        _check(runs >= _RUNS, f"{_RUNS} runs were asked for, and {profile.runs} are told")
        _check(len(total) >= runs, f"{runs} runs are told, and {len(total)} are timed as a whole")
        _check(np.isfinite(total).all(), "a time of an inference is no number")
        _check((total > 0).all(), "an inference takes no time")
        strange = set(samples) - {y.id for y in self.engine.layers}
        _check(not strange, f"it times layers that the engine does not have: {sorted(strange)}")
        layered = self.able.times != "inferences"
        _check(layered == bool(samples), f'it times "{self.able.times}", and tells of {len(samples)} layers')
        for layer, times in samples.items():
            _check(len(times) == runs, f'"{layer}" has {len(times)} times, and there were {runs} runs')
            _check((np.asarray(times) >= 0).all(), f'"{layer}" takes less than no time')

    def budget(self) -> None:
        profile = self._profile(runs=_MANY, seconds=_BUDGET)
        _check(1 <= (profile.runs or 0) < _MANY, f"in a budget of {_BUDGET} s it reports {profile.runs} runs")

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
        _check(set(names) == set(outputs), f"asked for {sorted(names)}, it gives {sorted(outputs)}")
        for name, reference in compute_reference(self.model, self.batch, tuple(names)).items():
            value = np.asarray(outputs[name])
            shapes = f"shape {value.shape}, and the model says {reference.shape}"
            _check(value.shape == reference.shape, f'"{name}" has {shapes}')
            error = compute_relative_error(value, reference)
            words = f"off by {error:.2g} of its largest magnitude, and {self.tolerance:g} is allowed"
            _check(error <= self.tolerance, f'"{name}" is {words}')

    def inputs_stay(self) -> None:
        before = {k: v.copy() for k, v in self.batch.items()}
        self._outputs()
        self._profile()
        for name, original in before.items():
            _check(np.array_equal(original, self.batch[name]), f'it writes into input "{name}"')

    def runs_pickled(self) -> None:
        self._check_copy(pickle.loads(pickle.dumps(self.engine)))  # noqa: S301 - its own

    def _check_copy(self, engine: Engine) -> None:
        try:
            self._check_outputs(self._outputs(engine), self.model.outputs)
        finally:
            self.backend.release(engine)

    def runs_released(self) -> None:
        self._outputs()
        self.backend.release(self.engine)
        self.backend.release(self.engine)
        self._check_outputs(self._outputs(), self.model.outputs)

    def refuses_to_run(self) -> None:
        names = ("no such value",)
        _expect_error(lambda: self._outputs(names=names), "it gives a value that there is not", RunError)
        run = functools.partial(self.backend.outputs, self.engine, {})
        _expect_error(run, "it runs without an input that the model needs", RunError)

    def runs_stop(self) -> None:
        _expect_cancelled(lambda: self._outputs(progress=_create_stopped()), "outputs()")
        _expect_cancelled(lambda: self._profile(progress=_create_stopped()), "profile()")

    def run_limit(self) -> None:
        """One run of a small network may be over before anybody looks; a million are not."""
        run = functools.partial(self._profile, runs=_MANY, limit_s=_BUDGET)
        _expect_error(run, f"profile() claims {_MANY:,} runs in {_BUDGET} s, which was the limit", RunError)

    # --- opening, counting, explaining, reading ----------------------------------------------------------------------

    def refuses_to_open(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            missing, other = Path(folder) / "missing.plan", Path(folder) / "other.plan"
            other.write_bytes(b"no engine at all" * 64)
            before, kinds = _digest(other), (ReadError, Unavailable)
            open_missing = functools.partial(self.backend.open_plan, missing)
            _expect_error(open_missing, "it opens a file that is not there", *kinds)
            open_other = functools.partial(self.backend.open_plan, other)
            _expect_error(open_other, "it opens a file that is no engine", *kinds, RunError)
            _check(before == _digest(other), _WRITES)

    def opens(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "engine.plan"
            self.backend.save(self.engine, file)
            before = _digest(file)
            engine = self.backend.open_plan(file)
            _check(before == _digest(file), _WRITES)
        self._check_copy(engine)

    def counts(self) -> None:
        throughput = self.backend.throughput(self.engine, self.batch, Silent(), streams=1, seconds=_BUDGET)
        _check(math.isfinite(throughput.rate), "the rate is no number")
        _check(throughput.rate > 0, "nothing was finished")
        _check(throughput.batch == 1, f"it counts a batch of {throughput.batch}, and 1 was given")
        count = functools.partial(self.backend.throughput, self.engine, self.batch, Silent(), streams=0)
        _expect_error(count, "it counts over no stream", RunError)

    def refuses_caches(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            missing, other, copy = (Path(folder) / f"{n}.cache" for n in ("missing", "other", "copy"))
            other.write_bytes(b"no timing cache at all" * 64)
            for file in (missing, other):
                for call in (
                    functools.partial(self.backend.remembered, file, ("0x1",)),
                    functools.partial(self.backend.forced, file, copy, (Entry("0x1", 1, 1.0),)),
                ):
                    _expect_error(call, f"it takes {file.name} for a timing cache", ReadError)
            _check(not copy.exists(), "it writes a copy of what it refuses")

    def forces(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file, copy = Path(folder) / "timing.cache", Path(folder) / "copy.cache"
            options = BuildOptions.of(flags=[self.backend.flag], timing_cache=file)
            log = self._build(options=options).log
            timed = {o.key: o.timed for o in self.backend.operators(log) if o.key}
            entries = self.backend.remembered(file, tuple(timed)) if timed else {}
            _check(set(entries) <= set(timed), f"asked for {sorted(timed)}, it reports {sorted(entries)}")
            others = {k: [t for t in timed[k] if int(t.tactic, 0) != e.tactic] for k, e in entries.items()}
            key = next((k for k, tactics in others.items() if tactics), None)
            if key is None:
                # There was no choice in a network of ten nodes.
                return
            before, tactic = _digest(file), int(others[key][0].tactic, 0)
            self.backend.forced(file, copy, (Entry(key, tactic, others[key][0].milliseconds),))
            _check(before == _digest(file), "it writes a timing cache that it was given to read")
            now = self.backend.remembered(copy, (key,))[key].tactic
            _check(now == tactic, f"told to force tactic {tactic:#x}, its copy holds {now:#x}")

    def refuses_to_explain(self) -> None:
        explain = functools.partial(self.backend.explain, make_unknown_op_model(), "odd", "behind")
        _expect_error(explain, "it explains an unknown operator", BuildError)

    def refuses_to_read(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            kinds = [*self.files] or ["layers"]
            missing = {k: Path(folder) / f"missing-{k}" for k in kinds}
            odd = {k: Path(folder) / f"odd-{k}" for k in kinds}
            for path in odd.values():
                path.write_bytes(b"\x00no file of anybody\x00")
            for files, what in ((missing, "that are not there"), (odd, "of no kind")):
                read = functools.partial(self.backend.read, files)
                _expect_error(read, f"it reads files {what}", ReadError)

    def reads(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            copies = {k: Path(folder) / p.name for k, p in self.files.items()}
            for kind, path in self.files.items():
                copies[kind].write_bytes(path.read_bytes())
            before = {p: _digest(p) for p in copies.values()}
            recording = self.backend.read(copies)
            _check(before == {p: _digest(p) for p in copies.values()}, _WRITES)
            _check(set(before) == set(Path(folder).iterdir()), "it leaves files behind")
        ids = [layer.id for layer in recording.engine.layers]
        _check(len(ids) == len(set(ids)), "two layers have one id")
        if recording.profile is not None:
            strange = set(recording.profile.samples) - set(ids)
            _check(not strange, f"it times layers that the engine does not have: {sorted(strange)}")
            _check(recording.profile.source, "the times do not say who measured them")


def check_rules(backend: Explainer, model: Model, engine: Engine) -> None:
    """Ask about every two neighbours: where both have layers, they share one exactly where it says so.

    Raises:
        AssertionError: they do not, or an answer lacks its rule, its source or its sentence.
    """
    homes: dict[str, set[str]] = {}
    for layer in engine.layers:
        for node in layer.origins:
            homes.setdefault(node, set()).add(layer.id)
    neighbours = ((n.id, r.id) for n in model.top for v in n.outputs for r in model.consumers.get(v, ()))
    for one, other in neighbours:
        verdict, both = backend.explain(model, one, other), f'of "{one}" and "{other}"'
        _check_type(verdict, Ruled, f"explain() {both}")
        is_sentence = verdict.text.rstrip().endswith(".")
        _check(is_sentence, f'what it tells {both} is no sentence: "{verdict.text}"')
        _check(verdict.source, f"what it tells {both} has no source")
        _check(verdict.rule or not verdict.fused, f"it says {both} that they are one layer, by no rule")
        if verdict.fused is not None and one in homes and other in homes:
            words = ("two layers", "one layer")
            shared = bool(homes[one] & homes[other])
            _check(
                verdict.fused == shared,
                f"it says {both} that they are {words[verdict.fused]}, and in its engine they are {words[shared]}",
            )

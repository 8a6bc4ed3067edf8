"""A small model, and a backend that is always there. Fakes are real implementations of the protocols: they compute."""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from rtlab.core.arrays import Batch
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import Model, load
from rtlab.core.progress import check
from rtlab.core.protocols import Availability, BuildRequest, Capabilities, Progress
from rtlab.core.trace import Outputs, Profile
from rtlab.core.variant import Precision, Target
from rtlab.errors import BuildError, RunError


def tiny_model(*, batch: int | str = "N", seed: int = 0) -> Model:
    """A network of ten nodes with every trait that fusion cares about.

    Convolution with batch normalization and ReLU, two parallel branches that are concatenated, a residual sum,
    global pooling and a classifier of four classes on inputs of shape ``(batch, 3, 8, 8)``.
    """
    rng = np.random.default_rng(seed)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        fan = int(np.prod(shape[1:])) or 1
        return numpy_helper.from_array((rng.standard_normal(shape) / np.sqrt(fan)).astype(np.float32), name)

    def constant(name: str, value: float, size: int) -> onnx.TensorProto:
        return numpy_helper.from_array(np.full(size, value, np.float32), name)

    node = helper.make_node
    nodes = [
        node("Conv", ["x", "stem_w"], ["stem"], name="stem/Conv", pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["stem", "g", "b", "m", "v"], ["normal"], name="stem/BatchNormalization"),
        node("Relu", ["normal"], ["act"], name="stem/Relu"),
        node("Conv", ["act", "left_w"], ["left"], name="left/Conv"),
        node("Conv", ["act", "right_w"], ["right"], name="right/Conv", pads=[1, 1, 1, 1]),
        node("Concat", ["left", "right"], ["both"], name="join/Concat", axis=1),
        node("Add", ["both", "act"], ["sum"], name="join/Add"),
        node("GlobalAveragePool", ["sum"], ["pooled"], name="head/GlobalAveragePool"),
        node("Flatten", ["pooled"], ["flat"], name="head/Flatten"),
        node("Gemm", ["flat", "fc_w", "fc_b"], ["y"], name="head/Gemm"),
    ]
    weights = [
        weight("stem_w", 8, 3, 3, 3),
        *(constant(name, value, 8) for name, value in zip("gbmv", (1.1, 0.1, 0.05, 0.9), strict=True)),
        weight("left_w", 4, 8, 1, 1),
        weight("right_w", 4, 8, 3, 3),
        weight("fc_w", 8, 4),
        constant("fc_b", 0.01, 4),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [batch, 3, 8, 8])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [batch, 4])],
        weights,
    )
    return load(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), name="tiny"
    )


class ReferenceBackend:
    """Builds one layer per node and runs ONNX's own reference evaluator: slow, independent, always there."""

    name, source = "reference", f"onnx {onnx.__version__} reference"

    def availability(self) -> Availability:
        """It needs nothing but onnx."""
        return Availability(ok=True, version=onnx.__version__)

    def capabilities(self) -> Capabilities:
        """The CPU, in fp32."""
        return Capabilities(targets=(Target("cpu"),), precisions=(Precision.FP32,), builds=True, runs=True)

    def build(self, request: BuildRequest, progress: Progress) -> Engine:
        """One layer per node of the main graph.

        Raises:
            BuildError: the evaluator does not know an operator.
            Cancelled: ``progress`` asked to stop.
        """
        check(progress, "the build")
        progress.phase("Building", len(request.model.top))
        started = time.perf_counter()
        try:
            ReferenceEvaluator(request.model.proto())
        except Exception as error:
            raise BuildError(
                f'Backend "{self.name}" cannot build "{request.variant.name}": ONNX\'s evaluator refuses the model. '
                "Choose a model of standard operators.",
                details=str(error),
            ) from error
        layers = tuple(
            Layer(
                id=f"{i}:{n.id}",
                name=n.id,
                kind=n.op,
                index=i,
                inputs=tuple(Tensor(v) for v in n.inputs if v),
                outputs=tuple(Tensor(v) for v in n.outputs if v),
                origins=(n.id,),
            )
            for i, n in enumerate(request.model.top)
        )
        return Engine(
            backend=self.name,
            version=onnx.__version__,
            target=Target("cpu"),
            layers=layers,
            inputs=tuple(Tensor(v) for v in request.model.inputs),
            outputs=tuple(Tensor(v) for v in request.model.outputs),
            seconds=time.perf_counter() - started,
            built=datetime.datetime.now(datetime.timezone.utc),
            runnable=request.model.bytes(),
        )

    def profile(
        self,
        engine: Engine,
        inputs: Batch,
        progress: Progress,
        *,
        runs: int = 3,
        warmup: int = 1,
        seconds: float | None = None,
        limit_s: float | None = None,
    ) -> Profile:
        """Whole runs are timed; a layer's samples are an equal part of each."""
        total: list[float] = []
        progress.phase("Timing", runs)
        begun = time.perf_counter()
        for i in range(runs + warmup):
            started = time.perf_counter()
            if total and seconds is not None and started - begun > seconds:
                break
            left = None if limit_s is None else max(0.0, limit_s - (started - begun))
            self.outputs(engine, inputs, progress=progress, limit_s=left)
            if i >= warmup:
                total.append((time.perf_counter() - started) * 1e3)
                progress.advance()
        part = np.asarray(total) / max(1, len(engine.layers))
        return Profile(
            source=self.source,
            device="python",
            samples={layer.id: part for layer in engine.layers},
            total=np.asarray(total),
            warmup=warmup,
            taken=datetime.datetime.now(datetime.timezone.utc),
            runs=len(total),
        )

    def outputs(
        self,
        engine: Engine,
        inputs: Batch,
        names: Sequence[str] = (),
        *,
        progress: Progress | None = None,
        limit_s: float | None = None,
    ) -> Outputs:
        """The named values of one batch. Its runs cannot be ended, so it is asked before, and judged after."""
        if progress is not None:
            check(progress, "the run")
        started = time.perf_counter()
        runnable = engine.runnable
        proto = runnable.proto() if isinstance(runnable, Model) else onnx.load_from_string(runnable or b"")
        known = [o.name for o in proto.graph.output]
        output_names = list(names) or known
        for name in set(names).difference(known):
            proto.graph.output.add(name=name)
        try:
            arrays = ReferenceEvaluator(proto).run(output_names, dict(inputs))
        except Exception as error:
            raise RunError(
                f'Backend "{self.name}" cannot run: ONNX\'s evaluator fails on these names or inputs. Check them '
                "against model.values and model.inputs.",
                details=str(error),
            ) from error
        if limit_s is not None and time.perf_counter() - started > limit_s:
            raise RunError(
                f'Backend "{self.name}" cannot run: it was not finished after {limit_s:.3g} s, which was left. '
                "Raise it with limit_s=..., or choose smaller batches."
            )
        return dict(zip(output_names, arrays, strict=True))

    def unfused(
        self,
        engine: Engine,
        inputs: Batch,  # noqa: ARG002 - the protocol's signature
        progress: Progress,
        *,
        limit_s: float | None = None,  # noqa: ARG002 - the same
    ) -> tuple[str, ...]:
        """Every value: nothing is fused."""
        check(progress, "the run")
        return tuple(dict.fromkeys(t.name for layer in engine.layers for t in layer.outputs))

    def release(self, engine: Engine) -> None:
        """Nothing is kept."""

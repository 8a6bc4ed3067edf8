"""The building half of ``fake_trt``: ``fake_trt_builder.trt10`` and ``.trt11`` also parse, configure and build.

A build computes nothing. It checks what a real builder checks, and logs as one line of JSON how it was configured, so
that a test sees it in the engine's log.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from typing import Any

import numpy as np
import onnx

import fake_trt
import tensorrt_api
from fake_trt import Api, Spec, layers_of, plan

#: Timing caches are ``TC:<version>:<gpu>:<builds>``, and after a further colon the entries of one that can be edited,
#: ``<key>=<tactic>=<milliseconds>`` each; the GPU that is "here" is this one.
GPU = "here"
#: The fastest tactic of the first operator; those of one operator follow each other, the fastest first.
FIRST = 0x665DED9AB0000
_COLUMNS = (
    "tactic_id, cost(in ms), cost/fastest_cost, prediction_correlation, kernel_name, tactic_hash, tunable"
)


class _Builder:
    def __init__(self, api: Api, logger: Any) -> None:
        self.api, self.logger = api, logger

    def log(self, severity: str, message: str) -> None:
        self.logger.log(self.api.severity[severity], message)

    def create_network(self, flags: int = 0) -> Any:
        return self.api.wrap("INetworkDefinition", _Network(self, int(flags)))

    def create_builder_config(self) -> Any:
        return self.api.wrap("IBuilderConfig", _Config(self))

    def create_optimization_profile(self) -> Any:
        return self.api.wrap("IOptimizationProfile", _Profile(self))

    def build_serialized_network(self, network: Any, config: Any) -> Any:
        net, conf = network._driver, config._driver
        nodes = net.model.graph.node
        flags = self.api.classes["NetworkDefinitionCreationFlag"]
        strong = bool(net.flags & (1 << int(flags.STRONGLY_TYPED)))
        on = sorted(f.name for f in conf.on)
        if strong and {"FP16", "INT8"} & set(on):
            where = "IBuilder::buildSerializedNetwork"
            self.log("ERROR", f"{where}: Error Code 4: flags of a weakly typed network are set")
            return None
        conf.progress_monitor.phase_start("Building", None, 2)
        if not conf.progress_monitor.step_complete("Building", 0):
            return None
        conf.timing["builds"] += 1
        taken: dict[str, tuple[int, float]] = {}
        if "EDITABLE_TIMING_CACHE" in on:
            taken = {n.name: self._tuned(i, n, conf.timing["entries"]) for i, n in enumerate(nodes)}
        conf.progress_monitor.phase_finish("Building")
        configured = {
            "strong": strong, "debug": net.debug, "flags": on, "pools": conf.pools,
            "state": {k: getattr(v := getattr(conf, k), "name", v) for k in _Config.ATTRIBUTES},
            "profiles": [p.bounds for p in conf.profiles], "tactics": conf.tactics, "preview": conf.preview,
            "tactics taken": {name: tactic for name, (tactic, _) in taken.items()},
        }  # fmt: skip
        self.log("VERBOSE", "CONFIGURED " + json.dumps(configured))
        self.log("VERBOSE", "Total Activation Memory: 4242")
        spec = Spec(
            self.api.name,
            net.model.SerializeToString(),
            layers_of(net.model, [[n.name] for n in nodes], era=11 if "11" in self.api.name else 10),
            rows=tuple((n.name, taken.get(n.name, (0, 0.5))[1]) for n in nodes),
            profiles=tuple(p.bounds for p in conf.profiles),
            inner=tuple(o for n in nodes for o in n.output) if net.debug else None,
        )
        return _memory(self.api, plan(spec))

    def _tuned(
        self, position: int, node: onnx.NodeProto, entries: dict[str, tuple[int, float]]
    ) -> tuple[int, float]:
        """The tactic of a node and what it costs: the one that the cache remembers, or the fastest, timed aloud.

        The words are those of TensorRT 10.8 and later, whose graph compiler logs so.
        """
        key = f"0x{hashlib.md5(f'{node.op_type}{position}'.encode()).hexdigest()}"  # noqa: S324 - a name, no secret
        fastest = FIRST + 16 * position
        tactics = {fastest + rank: 0.25 * (1 + rank / 4) for rank in range(3)}
        if key not in entries:
            for line in (
                f"Autotuning op {node.name}(key: {key}): [ONNX Layer: {node.name}]",
                "Sorted table of all evaluated tactics:",
                _COLUMNS,
                *(
                    f"{rank:4}, {cost:.7f}, {cost / 0.25:.5f}, 0.9, kernel_{rank}, {tactic:#x},"
                    for rank, (tactic, cost) in enumerate(tactics.items())
                ),
                f"The selected tactic is (tactic hash, cost(in ms)):{fastest:#x}, 0.25",
            ):
                self.log("VERBOSE", f" (foreignNode) {line}")
            entries[key] = (fastest, 0.25)
        tactic = entries[key][0]
        return tactic, tactics.get(tactic, 1.0)


class _Network:
    def __init__(self, builder: _Builder, flags: int) -> None:
        self.builder, self.flags, self.debug = builder, flags, False
        self.model = onnx.ModelProto()
        self.inputs: dict[str, tuple[int, ...]] = {}

    @property
    def num_layers(self) -> int:
        return len(self.model.graph.node)

    @property
    def num_inputs(self) -> int:
        return len(self.inputs)

    def get_input(self, index: int) -> Any:
        return self.builder.api.wrap("ITensor", _Tensor(self, list(self.inputs)[index]))

    def mark_unfused_tensors_as_debug_tensors(self) -> bool:
        self.debug = True
        return True


class _Tensor:
    def __init__(self, network: _Network, name: str) -> None:
        self.name, self.shape = name, network.builder.api.dims(network.inputs[name])
        self.is_shape_tensor = any(
            n.op_type == "Reshape" and n.input[1] == name for n in network.model.graph.node
        )


class _Parser:
    def __init__(self, api: Api, network: Any, logger: Any) -> None:
        self.network, self.num_errors = network._driver, 0

    def parse_from_file(self, model: str) -> bool:
        self.network.model = onnx.load(model)
        for given in self.network.model.graph.input:
            dims = given.type.tensor_type.shape.dim
            self.network.inputs[given.name] = tuple(
                d.dim_value if d.HasField("dim_value") else -1 for d in dims
            )
        return True

    def supports_model_v2(self, model: bytes, path: str | None = None) -> bool:
        return True


class _Profile:
    def __init__(self, builder: _Builder) -> None:
        self.bounds: dict[str, Any] = {}

    def set_shape(self, input: str, min: Any, opt: Any, max: Any) -> None:  # noqa: A002 - the binding's names
        self.bounds[input] = [tuple(min), tuple(opt), tuple(max)]

    def set_shape_input(self, input: str, min: Any, opt: Any, max: Any) -> None:  # noqa: A002
        self.bounds[input] = ["values", tuple(min), tuple(opt), tuple(max)]


class _Config:
    ATTRIBUTES = (
        "builder_optimization_level", "max_aux_streams", "profiling_verbosity", "tiling_optimization_level",
    )  # fmt: skip

    def __init__(self, builder: _Builder) -> None:
        enums = builder.api.classes
        self.builder, self.level, self.max_aux_streams = builder, 3, -1
        self.tiling_optimization_level = enums["TilingOptimizationLevel"].NONE
        self.profiling_verbosity = enums["ProfilingVerbosity"].LAYER_NAMES_ONLY
        self.progress_monitor = self.int8_calibrator = None
        self.on = {enums["BuilderFlag"].TF32}
        self.pools: dict[str, int] = {}
        self.profiles: list[_Profile] = []
        self.preview: list[str] = []
        self.tactics = 0
        self.timing: dict[str, Any] = {"gpu": GPU, "builds": 0, "entries": {}}

    @property
    def builder_optimization_level(self) -> int:
        return self.level

    @builder_optimization_level.setter
    def builder_optimization_level(self, value: int) -> None:
        if not isinstance(value, int):
            raise TypeError(f"incompatible function arguments: {value!r}")
        self.level = min(5, value)

    def set_flag(self, flag: Any) -> None:
        self.on.add(flag)

    def clear_flag(self, flag: Any) -> None:
        self.on.discard(flag)

    def set_memory_pool_limit(self, pool: Any, pool_size: int) -> None:
        if pool.name.startswith("DLA"):
            self.builder.log("ERROR", "setMemoryPoolLimit: Error Code 3: there is no DLA")
        self.pools[pool.name] = pool_size

    def get_memory_pool_limit(self, pool: Any) -> int:
        return self.pools[pool.name]

    def set_tactic_sources(self, tactic_sources: int) -> bool:
        self.tactics = tactic_sources
        return True

    def set_preview_feature(self, feature: Any, enable: bool) -> None:
        self.preview.append(feature.name)

    def add_optimization_profile(self, profile: Any) -> int:
        self.profiles.append(profile._driver)
        return len(self.profiles) - 1

    def create_timing_cache(self, serialized_timing_cache: bytes) -> Any:
        blob, version = bytes(serialized_timing_cache), self.builder.api.version
        state = {"gpu": GPU, "builds": 0, "entries": {}}
        if blob == b"none":
            return None
        if blob:
            parts = blob.decode("utf-8", "replace").split(":")
            if len(parts) in {4, 5} and parts[:2] == ["TC", version]:
                rows = [row.split("=") for row in parts[4].split(";")] if len(parts) == 5 else []
                entries = {key: (int(tactic), float(time)) for key, tactic, time in rows}
                state = {"gpu": parts[2], "builds": int(parts[3]), "entries": entries}
            else:
                self.builder.log(
                    "WARNING", "Failed to deserialize timing cache. Returning an empty timing cache."
                )
        return self.builder.api.wrap("ITimingCache", _Cache(self.builder.api, state))

    def set_timing_cache(self, cache: Any, ignore_mismatch: bool) -> bool:
        state = cache._driver.state
        if state["gpu"] != GPU and not ignore_mismatch:
            self.builder.log("WARNING", "The timing cache is of another GPU.")
            return False
        self.timing.update(state)
        return True

    def get_timing_cache(self) -> Any:
        return self.builder.api.wrap("ITimingCache", _Cache(self.builder.api, self.timing))


class _Cache:
    def __init__(self, api: Api, state: dict[str, Any]) -> None:
        self.api, self.state = api, state

    def serialize(self) -> Any:
        parts = ["TC", self.api.version, self.state["gpu"], str(self.state["builds"])]
        if self.state["entries"]:
            parts.append(
                ";".join(f"{k}={tactic}={time}" for k, (tactic, time) in self.state["entries"].items())
            )
        return _memory(self.api, ":".join(parts).encode())

    def queryKeys(self) -> list[Any]:  # noqa: N802 - the binding's name
        return [self.api.wrap("TimingCacheKey", _Key(key)) for key in self.state["entries"]]

    def query(self, key: Any) -> Any:
        # The greatest hash is that of no tactic.
        found = self.state["entries"].get(key._driver.text, (2**64 - 1, 0.0))
        return self.api.classes["TimingCacheValue"](*found)

    def update(self, key: Any, value: Any) -> bool:
        if not value.timingMSec >= 0:
            return False
        self.state["entries"][key._driver.text] = (value.tacticHash, value.timingMSec)
        return True


class _Key:
    def __init__(self, text: str) -> None:
        self.text = text


def _parse(api: Api, text: str) -> Any:
    if not re.fullmatch(r"0[xX][0-9a-fA-F]{32}", text):
        raise ValueError("The text should have exactly 34 characters.")
    return api.wrap("TimingCacheKey", _Key(text))


class _Value:
    def __init__(self, api: Api, arg0: int, arg1: float) -> None:
        self.tacticHash, self.timingMSec = int(arg0), float(np.float32(arg1))


class _Bytes:
    def __init__(self, content: bytes) -> None:
        self.content = content


def _memory(api: Api, content: bytes) -> Any:
    kind = api.classes["IHostMemory"]
    kind.__bytes__ = lambda this: this._driver.content
    return api.wrap("IHostMemory", _Bytes(content))


fake_trt._DRIVERS |= {"Builder": _Builder, "OnnxParser": _Parser, "TimingCacheValue": _Value}
fake_trt._STATIC |= {"TimingCacheKey.parse": _parse}
for _binding in fake_trt.BINDINGS if tensorrt_api.AVAILABLE else ():
    sys.modules[_binding.replace("fake_trt", __name__)] = fake_trt.api(_binding).module()

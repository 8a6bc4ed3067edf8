"""What the Python bindings have: TensorRT-RTX as installed, TensorRT 10.16.1 and 11.4.0 as far as rtlab uses them.

A listing has ``version``, ``classes`` (members by class, or ``enum``) and ``functions``. A member is "property" or the
signatures that pybind11 writes into docstrings.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import re
from typing import Any

VERSIONS = {"trt10": "10.16.1.11", "trt11": "11.4.0.106"}
AVAILABLE = importlib.util.find_spec("tensorrt_rtx") is not None

# Documented: TensorRT 10.16.1 and 11.4.0 Python API, docs.nvidia.com/deeplearning/tensorrt/latest/_static/python-api.
# What rtlab uses of both with the signature that TensorRT-RTX has too. A member that stands nowhere here counts as one
# that they lack, until somebody has looked it up.
BOTH = {
    "Builder": "build_serialized_network create_builder_config create_network create_optimization_profile",
    "Dims": "",
    "EngineInspector": "execution_context get_engine_information",
    "IBuilderConfig": "add_optimization_profile builder_optimization_level clear_flag create_timing_cache "
    "get_memory_pool_limit get_timing_cache max_aux_streams profiling_verbosity progress_monitor set_flag "
    "set_memory_pool_limit set_preview_feature set_tactic_sources set_timing_cache tiling_optimization_level",
    "ICudaEngine": "create_engine_inspector create_execution_context device_memory_size_v2 get_engine_stat "
    "get_tensor_dtype get_tensor_format get_tensor_location get_tensor_mode get_tensor_name get_tensor_profile_shape "
    "get_tensor_shape is_debug_tensor name num_aux_streams num_io_tensors num_optimization_profiles",
    "IDebugListener": "process_debug_tensor",
    "IExecutionContext": "enqueue_emits_profile execute_async_v3 get_tensor_shape infer_shapes profiler "
    "report_to_profiler set_debug_listener set_input_shape set_optimization_profile_async set_output_allocator "
    "set_tensor_address set_tensor_debug_state unfused_tensors_debug_state",
    "IHostMemory": "",
    "ILogger": "ERROR INFO INTERNAL_ERROR Severity VERBOSE WARNING log",
    "IAttentionInputLayer": "",
    "ILayer": "type",
    "INetworkDefinition": "get_input get_layer mark_unfused_tensors_as_debug_tensors num_inputs num_layers",
    "IOptimizationProfile": "set_shape set_shape_input",
    "IOutputAllocator": "",
    "IProfiler": "report_layer_time",
    "IProgressMonitor": "phase_finish phase_start step_complete",
    "ITensor": "is_shape_tensor name shape",
    "ITimingCache": "query queryKeys serialize update",
    "Logger": "ERROR INFO INTERNAL_ERROR Severity VERBOSE WARNING log",
    "OnnxParser": "get_error num_errors parse_from_file supports_model_v2",
    "ParserError": "desc node node_name node_operator",
    "Runtime": "deserialize_cuda_engine",
    "TimingCacheKey": "parse",
    "TimingCacheValue": "tacticHash timingMSec",
}
_FLAGS = "EDITABLE_TIMING_CACHE TF32 SPARSE_WEIGHTS STRICT_NANS"
_ENUMS = {
    "BuilderFlag": _FLAGS, "DataType": "FLOAT HALF BF16 INT8 INT32 INT64 BOOL UINT8 FP8 INT4 FP4 E8M0",
    "EngineStat": "TOTAL_WEIGHTS_SIZE STRIPPED_WEIGHTS_SIZE", "LayerInformationFormat": "ONELINE JSON",
    "LayerType": "ATTENTION_INPUT",
    "MemoryPoolType": "WORKSPACE DLA_MANAGED_SRAM DLA_LOCAL_DRAM DLA_GLOBAL_DRAM TACTIC_DRAM TACTIC_SHARED_MEMORY",
    "NetworkDefinitionCreationFlag": "STRONGLY_TYPED",
    "PreviewFeature": "ALIASED_PLUGIN_IO_10_03 RUNTIME_ACTIVATION_RESIZE_10_10",
    "ProfilingVerbosity": "LAYER_NAMES_ONLY DETAILED NONE", "TacticSource": "EDGE_MASK_CONVOLUTIONS JIT_CONVOLUTIONS",
    "TensorFormat": "LINEAR CHW2 HWC8 CHW4 CHW16 CHW32", "TensorIOMode": "NONE INPUT OUTPUT",
    "TensorLocation": "DEVICE HOST", "TilingOptimizationLevel": "NONE FAST MODERATE FULL",
}  # fmt: skip
# What each has beyond that: flags of weakly typed networks and calibrators went with 11, build routes came.
_OTHER_ENUMS = {
    "trt10": {
        "BuilderFlag": f"FP16 BF16 INT8 {_FLAGS}",
        "NetworkDefinitionCreationFlag": "EXPLICIT_BATCH STRONGLY_TYPED",
        "TacticSource": "CUBLAS CUBLAS_LT CUDNN EDGE_MASK_CONVOLUTIONS JIT_CONVOLUTIONS",
    },
    "trt11": {},
}
_CALIBRATORS = (
    "EntropyCalibrator", "EntropyCalibrator2", "LegacyCalibrator", "MinMaxCalibrator", "Calibrator",
)  # fmt: skip
_ADDED: dict[str, dict[str, dict[str, Any]]] = {
    "trt10": {
        "IBuilderConfig": {
            "int8_calibrator": "property",
            "set_calibration_profile": [
                "set_calibration_profile(self: v.IBuilderConfig, profile: v.IOptimizationProfile) -> bool"
            ],
        },
        "OnnxParser": {
            "supports_model": [
                "supports_model(self: v.OnnxParser, model: typing_extensions.Buffer, path: str = None) -> tuple"
            ]
        },
        **{f"IInt8{c}": {"__init__": [f"__init__(self: v.IInt8{c}) -> None"]} for c in _CALIBRATORS},
    },
    "trt11": {"IBuilderConfig": {"all_build_routes": "property"}},
}


@functools.cache
def installed() -> dict[str, Any]:
    module = importlib.import_module("tensorrt_rtx")
    classes = {n: _class(c) for n, c in vars(module).items() if inspect.isclass(c) and not n.startswith("_")}
    functions = {n: _signatures(n, f) for n, f in vars(module).items() if inspect.isroutine(f)}
    return {"version": module.__version__, "classes": classes, "functions": functions}


def _class(cls: Any) -> dict[str, Any]:
    if hasattr(cls, "__members__"):
        return {"enum": list(cls.__members__)}
    names = [n for n in dir(cls) if n == "__init__" or not n.startswith("_")]
    return {n: _member(cls, n) for n in names}


def _member(cls: Any, name: str) -> Any:
    kind = type(inspect.getattr_static(cls, name)).__name__
    if kind in {"property", "pybind11_static_property"}:
        return "property"
    return _signatures(name, getattr(cls, name)) or kind


def _signatures(name: str, function: Any) -> list[str]:
    return re.findall(rf"^(?:\d+\. )?({name}\(.*\) -> .*)$", function.__doc__ or "", re.MULTILINE)


@functools.cache
def listing(release: str) -> dict[str, Any]:
    here = installed()
    if release == "rtx":
        return here
    classes: dict[str, Any] = {
        c: {m: here["classes"][c][m] for m in ("__init__", *members.split())} for c, members in BOTH.items()
    }
    for name, members in (_ENUMS | _OTHER_ENUMS[release]).items():
        classes[name] = {"enum": members.split()}
    for name, added in _ADDED[release].items():
        classes[name] = classes.get(name, {}) | added
    functions = {"init_libnvinfer_plugins": here["functions"]["init_libnvinfer_plugins"]}
    return {"version": VERSIONS[release], "classes": classes, "functions": functions}


@functools.cache
def parameters(signature: str) -> tuple[tuple[str, str, str | None], ...] | None:
    """Name, type and default of each parameter; None where the text is none that pybind11 writes of a function."""
    found = re.match(r"\w+\((.*)\) -> ", signature)
    if found is None:
        return None
    parts, depth, start = [], 0, 0
    text = found[1]
    for i, character in enumerate(text + ","):
        depth += character in "[(<"
        depth -= character in "])>"
        if character == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    matches = [re.fullmatch(r"(\w+): (.*?)(?: = (.*))?", part) for part in parts if part]
    return None if None in matches else tuple((m[1], m[2], m[3]) for m in matches if m)

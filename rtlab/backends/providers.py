"""Execution providers of ONNX Runtime: which processors it can run on here, and how one gets the others.

A provider is either compiled into the user's build of ONNX Runtime, or comes in a plug-in package beside it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import json
import os
import pkgutil
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rtlab.backends import vendor
from rtlab.backends.workers import driver
from rtlab.core.options import BuildOptions
from rtlab.core.phrases import quote_names
from rtlab.core.variant import Target
from rtlab.errors import Unavailable, VariantError

#: What stands before the name of a provider where a backend is named.
PREFIX = "onnxruntime:"
_SUFFIX = "ExecutionProvider"
#: How packages of plug-ins begin; they tell the library and its providers by functions of agreed names.
_PLUG_INS = "onnxruntime_ep_"
#: First release that tells which nodes a provider took.
_FIRST = (1, 24)
#: Whether TF32 is on, as options spell it.
_SAME = {False: {"0", "false"}, True: {"1", "true"}}
#: Where it is 0, NVIDIA's libraries use no TF32; they read it once.
_OVERRIDE = "NVIDIA_TF32_OVERRIDE"
#: Platforms as ``sys.platform`` names them.
_PC, _MAC, _WINDOWS = ("linux", "win32"), ("darwin",), ("win32",)


@dataclasses.dataclass(frozen=True)
class Provider:
    """An execution provider by ONNX Runtime's name.

    ``devices`` has, by target, the options that choose it; the first is the default. ``package`` brings it on
    ``platforms``, where there is a wheel. ``waits`` is false where the profiler sees only how long work was handed over
    to the device, not how long it ran; then ``blocking`` is the variable that makes each node wait, if there is one.

    ``tf32`` is the option that is 1 where products of FP32 are computed as TF32, and 0 where they are not. ``exact``
    has, by target, the options by which numbers keep the model's types, where something less is the default; ``loose``
    what FP32 is computed in where there is no option for it.
    """

    name: str
    title: str
    devices: Mapping[str, Mapping[str, str]]
    package: str = ""
    platforms: tuple[str, ...] = ("linux", "win32", "darwin")
    waits: bool = True
    blocking: str = ""
    tf32: str = ""
    exact: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    loose: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def short(self) -> str:
        """Its name after ``onnxruntime:``."""
        return _plain(self.name)

    @property
    def targets(self) -> tuple[Target, ...]:
        """What it runs on, the default first."""
        return tuple(Target(name) for name in self.devices)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.removesuffix(_SUFFIX).lower().removesuffix(_SUFFIX.lower()))


def _provider(name: str, title: str, *targets: str, **more: Any) -> Provider:
    return Provider(name + _SUFFIX, title, {t: {} for t in targets}, **more)


def _get_accuracy_options(device: str) -> dict[str, str]:
    """OpenVINO's own default is the fastest type of the device: FP16 on a GPU, BF16 on a CPU that has it."""
    return {"load_config": json.dumps({device: {"EXECUTION_MODE_HINT": "ACCURACY"}})}


CPU = _provider("CPU", "CPU", "cpu")
#: Those of the documentation that run whole networks. Microsoft's cloud is not among them.
PROVIDERS = (
    CPU,
    _provider(
        "CUDA", "CUDA", "gpu", package="onnxruntime-gpu", platforms=_PC, waits=False,
        blocking="CUDA_LAUNCH_BLOCKING", tf32="use_tf32",
    ),
    _provider("Tensorrt", "TensorRT", "gpu", package="onnxruntime-gpu", platforms=_PC, loose={"gpu": "TF32"}),
    _provider(
        "NvTensorRTRTX", "TensorRT-RTX", "gpu", package="onnxruntime-ep-nv-tensorrt-rtx", platforms=_PC,
        loose={"gpu": "TF32"},
    ),
    _provider("ROCM", "ROCm", "gpu", package="onnxruntime-rocm", platforms=("linux",), waits=False),
    _provider("MIGraphX", "MIGraphX", "gpu", package="onnxruntime-migraphx", platforms=("linux",)),
    Provider(
        "OpenVINOExecutionProvider", "OpenVINO", {t.lower(): {"device_type": t} for t in ("CPU", "GPU", "NPU")},
        "onnxruntime-openvino", _PC, exact={t.lower(): _get_accuracy_options(t) for t in ("CPU", "GPU")},
        loose={"npu": "FP16"},
    ),
    Provider(
        "CoreMLExecutionProvider", "Core ML",
        {
            "npu": {"MLComputeUnits": "CPUAndNeuralEngine"}, "gpu": {"MLComputeUnits": "CPUAndGPU"},
            "cpu": {"MLComputeUnits": "CPUOnly"},
        },
        "onnxruntime", _MAC,
    ),
    _provider("Dml", "DirectML", "gpu", package="onnxruntime-directml", platforms=_WINDOWS, waits=False),
    Provider(
        "QNNExecutionProvider", "QNN",
        {"npu": {"backend_type": "htp"}, "gpu": {"backend_type": "gpu"}, "cpu": {"backend_type": "cpu"}},
        "onnxruntime-qnn", _PC, exact={"npu": {"enable_htp_fp16_precision": "0"}},
    ),
    _provider("WebGpu", "WebGPU", "gpu", package="onnxruntime-webgpu", waits=False),
    _provider(
        "CANN", "CANN", "npu", package="onnxruntime-cann", platforms=("linux",),
        exact={"npu": {"precision_mode": "must_keep_origin_dtype"}},
    ),
    _provider("VitisAI", "Vitis AI", "npu"),
    _provider("Xnnpack", "XNNPACK", "cpu"),
    _provider("Dnnl", "oneDNN", "cpu"),
    _provider("ACL", "Arm Compute Library", "cpu"),
)  # fmt: skip


@functools.cache
def version() -> str:
    """The release of ONNX Runtime that an import would give, whatever its package is called; empty without one."""
    spec = importlib.util.find_spec("onnxruntime")
    if spec is None:
        return ""
    text = ""
    with contextlib.suppress(OSError):
        text = Path(str(spec.origin)).read_text(encoding="utf-8")
    match = re.search(r'^__version__\s*=\s*["\'](.+?)["\']', text, re.MULTILINE)
    return match[1] if match else "of unknown version"


def parse_release() -> tuple[int, ...]:
    """The first two numbers of it; none where it is not known."""
    return tuple(int(n) for n in re.findall(r"\d+", version())[:2])


@functools.cache
def built_in() -> tuple[str, ...]:
    """Names of the providers that are compiled into this build."""
    return tuple(vendor.onnxruntime().get_available_providers()) if version() else ()


@functools.cache
def plug_ins() -> Mapping[str, str]:
    """Providers that plug-in packages bring, and what is wrong with each; empty text where nothing is."""
    problems: dict[str, str] = {}
    for module in pkgutil.iter_modules():
        if module.name.startswith(_PLUG_INS) and version():
            problems.update(_register_plug_in(module.name))
    for device in list_devices():
        problems.setdefault(str(device.ep_name), "")
    return {name: why for name, why in problems.items() if name not in built_in()}


def _register_plug_in(module: str) -> dict[str, str]:
    try:
        package = vendor.binding(module)
        names = package.get_ep_names() if hasattr(package, "get_ep_names") else [package.get_ep_name()]
    except Exception:  # noqa: BLE001 - a broken plug-in must not take the others along
        return {}
    why = f'plug-in "{module}" finds no device that it supports'
    try:
        vendor.onnxruntime().register_execution_provider_library(module, package.get_library_path())
    except Exception as error:  # noqa: BLE001
        # Registered by the user already, it has devices.
        first_line = str(error).strip().partition("\n")[0].rstrip(".")
        why = f'plug-in "{module}" cannot be loaded ({first_line or type(error).__name__})'
    usable_names = {str(d.ep_name) for d in list_devices()}
    return {str(name): "" if str(name) in usable_names else why for name in names}


def list_devices(name: str | None = None) -> list[Any]:
    """Devices of plug-ins, all or those of one provider, as ONNX Runtime describes them."""
    devices = vendor.onnxruntime().get_ep_devices() if version() else []
    return [d for d in devices if name is None or d.ep_name == name]


def list_available() -> tuple[Provider, ...]:
    """Providers that can be asked for here, besides the CPU's own."""
    usable_names = (*built_in(), *(name for name, why in plug_ins().items() if not why))
    return tuple(
        _find_provider(name) for name in usable_names if name not in {CPU.name, "AzureExecutionProvider"}
    )


def list_installable() -> tuple[Provider, ...]:
    """Providers that this platform could have, which its build of ONNX Runtime lacks."""
    available_names = {p.name for p in list_available()}
    return tuple(
        p
        for p in PROVIDERS[1:]
        if p.name not in available_names and p.package and sys.platform in p.platforms
    )


def _find_provider(name: str) -> Provider:
    """The provider of this name; one that is not in the table is taken for that of a GPU."""
    unknown = Provider(name, name.removesuffix(_SUFFIX), {"gpu": {}})
    return next((p for p in PROVIDERS if p.name == name), unknown)


def parse_provider(spelling: str) -> Provider:
    """The provider that is spelled so, in any case, with or without ``ExecutionProvider``.

    Raises:
        Unavailable: there is none of this name; the message names those that are here.
    """
    plain_name = _plain(spelling)
    others = tuple(_find_provider(name) for name in (*built_in(), *plug_ins()))
    for provider in (*PROVIDERS, *others):
        if plain_name in {provider.short, _plain(provider.title)}:
            return provider
    raise Unavailable(
        f'Cannot use backend "{PREFIX}{spelling}": ONNX Runtime knows no execution provider of this name. '
        f"Choose one of {_quote_available()}, or see rtlab.available() for those of other builds."
    )


def _quote_available() -> str:
    return ", ".join(f'"{PREFIX}{p.short}"' for p in list_available()) or 'backend="onnxruntime"'


def explain_missing(provider: Provider) -> str:
    """Why a provider cannot be used here, with the next step, in words that follow a colon; empty when it can."""
    if not version():
        return 'package "onnxruntime" is not installed. Run pip install onnxruntime.'
    if provider.name not in built_in() and (why := plug_ins().get(provider.name)) != "":
        if why:
            return f'{why}. Check the driver of the device, or choose backend="onnxruntime".'
        return (
            f"ONNX Runtime {version()} has no {provider.name} here, only {', '.join(built_in())}. "
            f"{_explain_install(provider)}"
        )
    if provider.name != CPU.name and parse_release() < _FIRST:
        return (
            f"ONNX Runtime {version()} does not report which nodes a provider takes. "
            f"Install release {'.'.join(map(str, _FIRST))} or later."
        )
    return ""


def _explain_install(provider: Provider) -> str:
    package = provider.package
    if not package or sys.platform not in provider.platforms:
        where = f" on {' or '.join(provider.platforms)}" if package else ""
        return f"Install a build of ONNX Runtime that has it{where}, or choose one that is here: {_quote_available()}."
    if _PLUG_INS.replace("_", "-") in package:
        return f'Run pip install {package}, or choose backend="onnxruntime".'
    # Two builds overwrite each other's files.
    return (
        f"Run pip uninstall --yes onnxruntime, then pip install {package}: only one build can be installed at a time. "
        'Or choose backend="onnxruntime".'
    )


def build_provider_options(
    provider: Provider, target: Target, user_options: BuildOptions | None, *, tf32: bool = False
) -> dict[str, str]:
    """A provider's options for a target, with those that the user gives by the provider's own names.

    Args:
        provider: The provider.
        target: One of its targets.
        user_options: Options of the user, which go before those by which numbers keep the model's types.
        tf32: Whether products of FP32 are to be computed as TF32; otherwise they are not.

    Raises:
        VariantError: an option is no pair of name and value, or chooses another device than the target's, or another
            arithmetic than the precision's.
    """
    backend, targets = f'Backend "{PREFIX}{provider.short}"', quote_names(provider.devices)
    if str(target) not in provider.devices:
        raise VariantError(
            f'{backend} cannot build for target "{target}": {provider.title} does not run there. Choose one of '
            f"{targets}."
        )
    device = provider.devices[str(target)]
    provider_options = {**device, **provider.exact.get(str(target), {})}
    if provider.tf32:
        provider_options[provider.tf32] = str(int(tf32))
    if user_options is None:
        return provider_options
    if user_options.count != len(user_options.config):
        raise VariantError(
            f'{backend} cannot take options "{user_options}": flags, pools, profiles and timing caches are those of a '
            f'TensorRT builder. Give options of {provider.name} by name, such as options={{"device_id": 0}}.'
        )
    for name, value in user_options.config:
        error_prefix, text = f'{backend} cannot take {name}="{value}"', str(value)
        if isinstance(value, tuple) or value is None:
            raise VariantError(
                f"{error_prefix}: a provider takes numbers and texts only. Write the value as one text."
            )
        if name == provider.tf32 and text.lower() not in _SAME[tf32]:
            raise VariantError(
                f"{error_prefix} for precision {'tf32' if tf32 else 'other than tf32'}: the precision decides it. "
                f'Choose precision="{"fp32" if tf32 else "tf32"}", or leave the option out.'
            )
        if name in device and device[name].lower() not in text.lower():
            raise VariantError(
                f'{error_prefix} for target "{target}": that is another device. Choose with target=..., one of '
                f"{targets}."
            )
        provider_options[name] = text
    return provider_options


def describe_arithmetic(
    provider: Provider, target: Target, provider_options: Mapping[str, str], *, tf32: bool = False
) -> str:
    """What FP32 is computed in on a target with these options, in words for a note; empty where that is FP32 anyway."""
    loose, exact = provider.loose.get(str(target), ""), provider.exact.get(str(target), {})
    if provider.tf32 or loose == "TF32":
        if os.environ.get(_OVERRIDE) == "0":
            return f"FP32 is computed as FP32, since {_OVERRIDE}=0 is set"
        if provider.tf32 and tf32:
            return f"products of FP32 are computed as TF32 ({provider.tf32}=1)"
        if provider.tf32:
            return f"FP32 is computed as FP32 ({provider.tf32}=0)"
        return (
            f"products of FP32 are computed as TF32 where that is faster: {provider.name} has no option for it. "
            f"For FP32, set {_OVERRIDE}=0 before Python starts"
        )
    if tf32:
        return f"{provider.title} has no TF32: it computes what fp32 does"
    if loose:
        return f"FP32 is computed in {loose} on this device"
    if overridden_options := [name for name in exact if provider_options.get(name) != exact[name]]:
        return f"what FP32 is computed in is up to the {overridden_options[0]} that was given"
    return f"numbers keep the model's types ({', '.join(exact)})" if exact else ""


def get_device_name(provider: Provider, target: Target) -> str:
    """The device's name, where its NVIDIA driver or ONNX Runtime has it."""
    gpu = driver.device() if provider.title in {"CUDA", "TensorRT", "TensorRT-RTX"} else None
    if gpu is not None:
        return gpu.name
    for ep_device in list_devices(provider.name):
        description = ep_device.device.metadata.get("Description") or ep_device.device.vendor
        if ep_device.device.type.name == str(target).upper() and description:
            return str(description)
    return f"{provider.title} {str(target).upper()}"

"""Tells a builder's configuration what the user wants, by TensorRT's own names. Runs in the child process.

Which attributes, flags and pools exist is asked of the binding itself; what it lacks is refused with what it has.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rtlab.errors import BuildError, VariantError

if TYPE_CHECKING:
    from rtlab.backends.workers.job_spec import BuildSpec

#: Attributes of a configuration that are not the user's, and what to do instead.
_RESERVED_ATTRIBUTES = {
    "flags": "Give flags=[...] and cleared=[...] with names",
    "profiling_verbosity": "Leave it out: rtlab needs DETAILED",
    "progress_monitor": "Leave it out: rtlab shows progress with it",
    "num_compute_capabilities": "Choose target=...",
    "int8_calibrator": "Give implicit=True and choose calibrator=...",
    "quantization_flags": "Leave it out: a calibrator sets what it needs",
    "algorithm_selector": "Leave it out: an object cannot be sent to the compiler's process",
    "profile_stream": "Leave it out: an object cannot be sent to the compiler's process",
}
#: What is set by a method instead of an attribute.
_METHOD_SETTINGS = ("preview_features", "tactic_sources")
#: Flags of weakly typed networks.
_WEAK_TYPING_FLAGS = {"FP16", "BF16", "INT8", "FP8", "INT4", "FP4"} | {
    "OBEY_PRECISION_CONSTRAINTS",
    "PREFER_PRECISION_CONSTRAINTS",
}


def _describe_compiler(trt: Any, spec: BuildSpec) -> str:
    """The compiler's name with its version, as messages say it."""
    return f"{spec.product} {trt.__version__}"


def apply(trt: Any, config: Any, spec: BuildSpec, warnings: list[str]) -> None:
    """Set attributes, flags and memory pools of an ``IBuilderConfig``.

    ``warnings`` are errors and warnings that the builder logged so far; they grow while it is used.

    Raises:
        VariantError: a name is unknown to this binding, or it does not take the value.
    """
    options = spec.options
    for name, value in options.config:
        _set(trt, config, spec, (name, value), warnings)
    flags = trt.BuilderFlag.__members__
    for name in (*options.flags, *options.cleared):
        if name in _WEAK_TYPING_FLAGS and spec.calibration is None:
            raise VariantError(
                f'{spec.error_prefix}: builder flag "{name}" belongs to weakly typed networks, and the types of this '
                'one stand in its graph. Choose the precision instead, such as precision="fp16".'
            )
        if name not in flags:
            raise _create_unknown_error(trt, spec, "builder flag", name, flags)
    for name in options.flags:
        config.set_flag(flags[name])
    for name in options.cleared:
        config.clear_flag(flags[name])
    pools = trt.MemoryPoolType.__members__
    for name, size in options.pools:
        if name not in pools:
            raise _create_unknown_error(trt, spec, "memory pool", name, pools)
        before = len(warnings)
        config.set_memory_pool_limit(pools[name], size)
        if (actual_size := config.get_memory_pool_limit(pools[name])) != size or warnings[before:]:
            raise VariantError(
                f'{spec.error_prefix}: {_describe_compiler(trt, spec)} does not limit memory pool "{name}" to {size} '
                f"bytes and keeps {actual_size}. {_format_reason(warnings[before:])}Choose another limit, or leave it "
                "out."
            )


def _set(trt: Any, config: Any, spec: BuildSpec, setting: tuple[str, Any], warnings: list[str]) -> None:
    """Set one attribute of the configuration, and see that it was taken."""
    name, value = setting
    if name in _RESERVED_ATTRIBUTES:
        raise VariantError(
            f'{spec.error_prefix}: "{name}" is not for the user to set. {_RESERVED_ATTRIBUTES[name]}.'
        )
    if name in _METHOD_SETTINGS:
        _set_by_method(trt, config, spec, name, (value,) if isinstance(value, str) else tuple(value))
        return
    attributes = [n for n in dir(type(config)) if getattr(getattr(type(config), n), "fset", None) is not None]
    if name not in attributes:
        settable = [n for n in (*attributes, *_METHOD_SETTINGS) if n not in _RESERVED_ATTRIBUTES]
        raise _create_unknown_error(trt, spec, "attribute of IBuilderConfig", name, settable)
    default, before = getattr(config, name), len(warnings)
    members = getattr(type(default), "__members__", None)
    if members is not None and value not in members:
        raise _create_unknown_error(trt, spec, f"value of {name}", str(value), members)
    requested_setting = (
        list(value) if isinstance(value, tuple) else value if members is None else members[value]
    )
    try:
        setattr(config, name, requested_setting)
    except (AttributeError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise VariantError(
            f"{spec.error_prefix}: {_describe_compiler(trt, spec)} does not take {name}={value!r}, which is a "
            f"{type(value).__name__}. Give a value like the default, {default!r}.",
            details=str(error),
        ) from error
    if (actual_setting := getattr(config, name)) != requested_setting:
        raise VariantError(
            f"{spec.error_prefix}: {_describe_compiler(trt, spec)} does not take {name}={value!r}: it keeps "
            f"{actual_setting!r}. {_format_reason(warnings[before:])}Choose a value within its bounds, or leave it out."
        )


def _set_by_method(trt: Any, config: Any, spec: BuildSpec, name: str, members: tuple[str, ...]) -> None:
    enum_members = (trt.PreviewFeature if name == "preview_features" else trt.TacticSource).__members__
    for member in members:
        if member not in enum_members:
            raise _create_unknown_error(trt, spec, f"member of {name}", str(member), enum_members)
    if name == "preview_features":
        for member in members:
            config.set_preview_feature(enum_members[member], True)  # noqa: FBT003 - the binding's signature
    elif not config.set_tactic_sources(sum(1 << int(enum_members[one]) for one in set(members))):
        raise VariantError(
            f"{spec.error_prefix}: {_describe_compiler(trt, spec)} does not take tactic_sources={list(members)}. "
            "Choose fewer, or leave them out."
        )


def add_profiles(builder: Any, network: Any, config: Any, spec: BuildSpec, warnings: list[str]) -> None:
    """Add the optimization profiles; a shape tensor gets values instead of sizes.

    Raises:
        BuildError: an input needs a profile and has none, or TensorRT refuses one.
    """
    tensors = [network.get_input(i) for i in range(network.num_inputs)]
    required_inputs = [t.name for t in tensors if t.is_shape_tensor or -1 in tuple(t.shape)]
    if not spec.profiles and not required_inputs:
        return
    for number, ranges in enumerate(spec.profiles or ({},)):
        if missing := [name for name in required_inputs if name not in ranges]:
            raise BuildError(
                f'{spec.error_prefix}: optimization profile {number} lacks input "{missing[0]}", whose values or sizes '
                f'are not fixed. Give profiles=[{{"{missing[0]}": (least, usual, greatest)}}]; a shape tensor has its '
                "values there."
            )
        profile = builder.create_optimization_profile()
        before = len(warnings)
        try:
            for tensor in tensors:
                if tensor.name not in ranges:
                    continue
                set_range = profile.set_shape_input if tensor.is_shape_tensor else profile.set_shape
                set_range(tensor.name, *ranges[tensor.name])
            accepted = config.add_optimization_profile(profile) >= 0
        except (TypeError, ValueError, RuntimeError) as error:
            warnings.append(str(error))
            accepted = False
        if not accepted:
            raise BuildError(
                f"{spec.error_prefix}: optimization profile {number} is refused. {_format_reason(warnings[before:])}"
                "Give sizes that the graph allows."
            )


def use_timing_cache(config: Any, spec: BuildSpec, warnings: list[str]) -> tuple[str, ...]:
    """Give the builder the timing cache of earlier builds; one that does not fit is replaced, with a note."""
    if spec.timing is None:
        return ()
    if not spec.times:
        return (f"no timing cache: {spec.product} times nothing while it builds, and ignores one",)
    before = len(warnings)
    cache = config.create_timing_cache(spec.timing)
    # A cache of another GPU or version is refused here; a damaged one may come back empty, with a warning.
    accepted = cache is not None and config.set_timing_cache(cache, ignore_mismatch=False)
    if accepted and not (spec.timing and warnings[before:]):
        return ()
    why = " ".join(warnings[before:])
    config.set_timing_cache(config.create_timing_cache(b""), ignore_mismatch=False)
    return (f"timing cache replaced: it is damaged, or of another version or GPU. {why}".rstrip(),)


def serialize_timing_cache(config: Any, spec: BuildSpec) -> bytes:
    """The timing cache after a build; empty where none is wanted."""
    if spec.timing is None or not spec.times:
        return b""
    cache = config.get_timing_cache()
    return b"" if cache is None else bytes(cache.serialize())


def _create_unknown_error(
    trt: Any, spec: BuildSpec, noun: str, name: str, choices: Iterable[str] | Mapping[str, Any]
) -> VariantError:
    """A refusal that names what is close, and all that exists."""
    names = list(choices)
    by_case = {n.casefold(): n for n in names}
    close = [by_case[c] for c in difflib.get_close_matches(name.casefold(), by_case, n=3)]
    hint = f"Did you mean {' or '.join(close)}? " if close else ""
    return VariantError(
        f'{spec.error_prefix}: {_describe_compiler(trt, spec)} has no {noun} "{name}". {hint}Choose one of '
        f"{', '.join(names)}."
    )


def _format_reason(warnings: list[str]) -> str:
    return f"It says: {warnings[0]} " if warnings else ""

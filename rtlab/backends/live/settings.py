"""Tells a builder's configuration what the user wants, by TensorRT's own names. Runs in the child process.

Which attributes, flags and pools exist is asked of the binding itself; what it lacks is refused with what it has.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rtlab.errors import BuildError, VariantError

if TYPE_CHECKING:
    from rtlab.backends.live.order import BuildOrder

#: Attributes of a configuration that are not the user's, and what to do instead.
_OURS = {
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
_SEVERAL = ("preview_features", "tactic_sources")
#: Flags of weakly typed networks.
_WEAK = {"FP16", "BF16", "INT8", "FP8", "INT4", "FP4"} | {
    "OBEY_PRECISION_CONSTRAINTS",
    "PREFER_PRECISION_CONSTRAINTS",
}


def _here(trt: Any, order: BuildOrder) -> str:
    """The compiler's name with its version, as messages say it."""
    return f"{order.product} {trt.__version__}"


def apply(trt: Any, config: Any, order: BuildOrder, loud: list[str]) -> None:
    """Set attributes, flags and memory pools.

    Args:
        trt: The binding.
        config: Its ``IBuilderConfig``.
        order: The build, with its options.
        loud: Errors and warnings that the builder logged so far; it grows while it is used.

    Raises:
        VariantError: a name is unknown to this binding, or it does not take the value.
    """
    options = order.options
    for name, value in options.config:
        _set(trt, config, order, (name, value), loud)
    flags = trt.BuilderFlag.__members__
    for name in (*options.flags, *options.cleared):
        if name in _WEAK and order.calibration is None:
            raise VariantError(
                f'{order.label}: builder flag "{name}" belongs to weakly typed networks, and the types of this one '
                f'stand in its graph. Choose the precision instead, such as precision="fp16".'
            )
        if name not in flags:
            raise _unknown(trt, order, "builder flag", name, flags)
    for name in options.flags:
        config.set_flag(flags[name])
    for name in options.cleared:
        config.clear_flag(flags[name])
    pools = trt.MemoryPoolType.__members__
    for name, size in options.pools:
        if name not in pools:
            raise _unknown(trt, order, "memory pool", name, pools)
        before = len(loud)
        config.set_memory_pool_limit(pools[name], size)
        if (kept := config.get_memory_pool_limit(pools[name])) != size or loud[before:]:
            raise VariantError(
                f'{order.label}: {_here(trt, order)} does not limit memory pool "{name}" to {size} bytes '
                f"and keeps {kept}. {_said(loud[before:])}Choose another limit, or leave it out."
            )


def _set(trt: Any, config: Any, order: BuildOrder, wish: tuple[str, Any], loud: list[str]) -> None:
    """Set one attribute of the configuration, and see that it was taken."""
    name, value = wish
    if name in _OURS:
        raise VariantError(f'{order.label}: "{name}" is not for the user to set. {_OURS[name]}.')
    if name in _SEVERAL:
        _set_several(trt, config, order, name, (value,) if isinstance(value, str) else tuple(value))
        return
    known = [n for n in dir(type(config)) if getattr(getattr(type(config), n), "fset", None) is not None]
    if name not in known:
        offered = [n for n in (*known, *_SEVERAL) if n not in _OURS]
        raise _unknown(trt, order, "attribute of IBuilderConfig", name, offered)
    default, before = getattr(config, name), len(loud)
    members = getattr(type(default), "__members__", None)
    if members is not None and value not in members:
        raise _unknown(trt, order, f"value of {name}", str(value), members)
    wanted = list(value) if isinstance(value, tuple) else value if members is None else members[value]
    try:
        setattr(config, name, wanted)
    except (AttributeError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise VariantError(
            f"{order.label}: {_here(trt, order)} does not take {name}={value!r}, which is a "
            f"{type(value).__name__}. Give a value like the default, {default!r}.",
            details=str(error),
        ) from error
    if (kept := getattr(config, name)) != wanted:
        raise VariantError(
            f"{order.label}: {_here(trt, order)} does not take {name}={value!r}: it keeps {kept!r}. "
            f"{_said(loud[before:])}Choose a value within its bounds, or leave it out."
        )


def _set_several(trt: Any, config: Any, order: BuildOrder, name: str, wanted: tuple[str, ...]) -> None:
    known = (trt.PreviewFeature if name == "preview_features" else trt.TacticSource).__members__
    for one in wanted:
        if one not in known:
            raise _unknown(trt, order, f"member of {name}", str(one), known)
    if name == "preview_features":
        for one in wanted:
            config.set_preview_feature(known[one], True)  # noqa: FBT003 - the binding's signature
    elif not config.set_tactic_sources(sum(1 << int(known[one]) for one in set(wanted))):
        raise VariantError(
            f"{order.label}: {_here(trt, order)} does not take tactic_sources={list(wanted)}. "
            "Choose fewer, or leave them out."
        )


def add_profiles(builder: Any, network: Any, config: Any, order: BuildOrder, loud: list[str]) -> None:
    """Add the optimization profiles; a shape tensor gets values instead of sizes.

    Raises:
        BuildError: an input needs a profile and has none, or TensorRT refuses one.
    """
    tensors = [network.get_input(i) for i in range(network.num_inputs)]
    needed = [t.name for t in tensors if t.is_shape_tensor or -1 in tuple(t.shape)]
    if not order.profiles and not needed:
        return
    for number, given in enumerate(order.profiles or ({},)):
        if lacking := [name for name in needed if name not in given]:
            raise BuildError(
                f'{order.label}: optimization profile {number} lacks input "{lacking[0]}", whose values or sizes are '
                f'not fixed. Give profiles=[{{"{lacking[0]}": (least, usual, greatest)}}]; a shape tensor has its '
                "values there."
            )
        profile = builder.create_optimization_profile()
        before = len(loud)
        try:
            for tensor in tensors:
                if tensor.name not in given:
                    continue
                set_range = profile.set_shape_input if tensor.is_shape_tensor else profile.set_shape
                set_range(tensor.name, *given[tensor.name])
            taken = config.add_optimization_profile(profile) >= 0
        except (TypeError, ValueError, RuntimeError) as error:
            loud.append(str(error))
            taken = False
        if not taken:
            raise BuildError(
                f"{order.label}: optimization profile {number} is refused. {_said(loud[before:])}"
                "Give sizes that the graph allows."
            )


def use_timing_cache(config: Any, order: BuildOrder, loud: list[str]) -> tuple[str, ...]:
    """Give the builder the timing cache of earlier builds; one that does not fit is replaced, with a note."""
    if order.timing is None:
        return ()
    if not order.times:
        return (f"no timing cache: {order.product} times nothing while it builds, and ignores one",)
    before = len(loud)
    cache = config.create_timing_cache(order.timing)
    # A cache of another GPU or version is refused here; a damaged one may come back empty, with a warning.
    taken = cache is not None and config.set_timing_cache(cache, ignore_mismatch=False)
    if taken and not (order.timing and loud[before:]):
        return ()
    why = " ".join(loud[before:])
    config.set_timing_cache(config.create_timing_cache(b""), ignore_mismatch=False)
    return (f"timing cache replaced: it is damaged, or of another version or GPU. {why}".rstrip(),)


def timing_cache(config: Any, order: BuildOrder) -> bytes:
    """The timing cache after a build; empty where none is wanted."""
    if order.timing is None or not order.times:
        return b""
    cache = config.get_timing_cache()
    return b"" if cache is None else bytes(cache.serialize())


def _unknown(
    trt: Any, order: BuildOrder, noun: str, name: str, known: Iterable[str] | Mapping[str, Any]
) -> VariantError:
    """A refusal that names what is close, and all that exists."""
    names = list(known)
    by_case = {n.casefold(): n for n in names}
    close = [by_case[c] for c in difflib.get_close_matches(name.casefold(), by_case, n=3)]
    hint = f"Did you mean {' or '.join(close)}? " if close else ""
    return VariantError(
        f'{order.label}: {_here(trt, order)} has no {noun} "{name}". {hint}Choose one of {", ".join(names)}.'
    )


def _said(loud: list[str]) -> str:
    return f"It says: {loud[0]} " if loud else ""

"""Numbers as text, with units that read well."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rtlab.core.engine import Engine


def format_number(value: float | None, unit: str = "", *, signed: bool = False) -> str:
    """Three significant digits and a unit; an em dash where there is no number."""
    if value is None:
        return "—"
    if unit == "ms" and 0 < abs(value) < 1:
        value, unit = value * 1e3, "µs"
    text = f"{value:+.3g}" if signed else f"{value:.3g}"
    if "e+" in text and abs(value) < 1e7:
        # 1,100 rather than 1.1e+03.
        text = f"{float(text):{'+' if signed else ''},.0f}"
    return f"{text.replace('-', '−')} {unit}".strip()


def format_bytes(nbytes: int | None, *, signed: bool = False) -> str:
    """Bytes in the binary unit that reads best, such as 1.1 GiB; an em dash where they are not told."""
    if nbytes is None:
        return "—"
    if abs(nbytes) < 1024:
        return f"{nbytes:{'+' if signed else ''}d} bytes".replace("-", "−")
    unit, scale = choose_byte_unit(abs(nbytes))
    return format_number(nbytes / scale, unit, signed=signed)


def choose_byte_unit(most: int) -> tuple[str, float]:
    """The binary unit for up to so many bytes, as compilers and nvidia-smi count them, and how many it holds."""
    units = (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10))
    return next(((u, s) for u, s in units if most >= s), units[-1])


def choose_time_unit(most: float) -> tuple[str, float]:
    """The unit for times of up to so many milliseconds, and how many of it a millisecond has."""
    return ("µs", 1e3) if most < 1 else ("ms", 1.0)


def shorten_name(name: str, most: int = 70) -> str:
    """A name of at most so many letters or so, cut in its middle: names of one engine begin and end differently."""
    return name if len(name) <= most else f"{name[: most // 2]}…{name[-most // 2 :]}"


def get_layer_noun(engine: Engine) -> str:
    """What one step of an engine is called, so that nobody compares layers of two compilers by their number."""
    return engine.maker.step or engine.detail


def get_layer_heading(engine: Engine) -> str:
    """The same of several, as a heading: those of ONNX Runtime are no layers of TensorRT."""
    name = get_layer_noun(engine)
    return f"{name[:1].upper()}{name[1:]}s"

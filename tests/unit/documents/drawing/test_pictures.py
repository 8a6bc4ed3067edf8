"""Pictures of panels: what is drawn is what the numbers say."""

from __future__ import annotations

import io
import math
import re
import xml.etree.ElementTree as ET

import pytest
from PIL import ImageFont

import recorded
import rtlab
from hostile_study import HOSTILE, hostile_model, planned
from rtlab import CalibrationData, Study, samples
from rtlab.documents.drawing.axes import axis_of
from rtlab.documents.drawing.marks import bar_places
from rtlab.documents.drawing.pen import DARK, LIGHT, Pen, cut, rgba, width_of, wrapped
from rtlab.documents.drawing.plot import draw
from rtlab.documents.drawing.sheet import picture
from rtlab.documents.tabs import TABS
from rtlab.errors import RtlabError, Unavailable, VariantError
from rtlab.questions.panels import PANELS

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def digits() -> Study:
    sample = samples.load("digits_inception", samples=32)
    made = Study(sample.model, data=sample.calibration, task=sample.task)
    made.add("fp32", backend="onnxruntime", target="cpu")
    made.add("int8", backend="onnxruntime", target="cpu")
    return made.run()


@pytest.fixture(scope="module")
def hostile() -> Study:
    made = planned(hostile_model())
    made.add(HOSTILE, precision="fp16", target="cpu", backend="onnxruntime")
    return made.run()


@pytest.fixture(scope="module")
def lstm() -> Study:
    sample = samples.load("digits_lstm", samples=8)
    made = Study(sample.model, data=sample.calibration)
    made.add("fp32")
    return made.run(compare=False)


@pytest.fixture(scope="module")
def read() -> Study:
    return rtlab.read(**recorded.files(next(f for f in recorded.ENGINES if f.name == "written-fp16")))


def texts(svg: str) -> list[str]:
    return [t.text or "" for t in ET.fromstring(svg).iter(f"{SVG}text")]


def bars(svg: str) -> dict[str, dict[str, float]]:
    """Rectangles that say what they are of: left, top, width and height."""
    found = {}
    for rect in ET.fromstring(svg).iter(f"{SVG}rect"):
        title = rect.find(f"{SVG}title")
        if title is not None:
            found[title.text] = {k: float(rect.get(k)) for k in ("x", "y", "width", "height")}
    return found


@pytest.mark.parametrize("name", [*PANELS, "layers", "errors"])
def test_every_panel_is_drawn_of_every_study(name, digits, hostile, lstm, read) -> None:
    """Valid XML whatever names there are, with title, variant and sources; the same picture each time."""
    for study, variant in ((digits, "int8"), (hostile, HOSTILE), (lstm, "fp32"), (read, "engine")):
        first = "fp32" if variant != "fp32" and len(study) > 1 else None
        picture = study.picture(name, variant=variant, baseline=first)
        root = ET.fromstring(picture.svg)
        said = texts(picture.svg)
        assert said[0]
        assert not {t.tag for t in root.iter()} & {
            f"{SVG}script",
            f"{SVG}foreignObject",
            f"{SVG}b",
            f"{SVG}img",
        }
        assert any(t.startswith(("◐ compiled", "◐ read")) for t in said), variant
        assert picture.svg == study.picture(name, variant=variant, baseline=first).svg
        width = float(root.get("width"))
        for number in re.findall(r' (?:x|y|width|height)="(-?[\d.e+-]+|nan|inf)"', picture.svg):
            assert math.isfinite(float(number)), number
            assert -width < float(number) < 40 * width


def test_bars_are_as_high_as_the_times_of_the_layers(digits) -> None:
    """Read off the picture, a bar is the median of the profile's samples."""
    result = digits["int8"]
    found = bars(digits.picture("layers", variant="int8").svg)
    medians = {layer: sorted(runs)[len(runs) // 2] for layer, runs in result.profile.samples.items()}
    times = {t.layer: t.median for t in result.timing.layers}
    assert set(times) == set(found) & set(medians)
    longest = max(times, key=times.get)
    scale = found[longest]["height"] / times[longest]
    for layer, median in times.items():
        assert found[layer]["height"] == pytest.approx(scale * median, abs=0.02), layer
    # They stand on one line, in the order of the steps.
    feet = [b["y"] + b["height"] for b in found.values()]
    assert max(feet) - min(feet) < 0.03
    order = sorted(times, key=lambda y: found[y]["x"])
    assert [y.id for y in result.engine.layers if y.id in times] == order


def figure(data, **layout) -> dict:
    return {"data": data, "layout": layout}


def drawn(data, **layout) -> str:
    pen = Pen(LIGHT)
    draw(pen, figure(data, **layout), (0.0, 0.0, 600.0, 300.0), "f")
    return f'<svg xmlns="http://www.w3.org/2000/svg">{"".join(pen.parts)}</svg>'


def test_a_waterfall_ends_where_its_steps_add_up_to() -> None:
    """121, 9 more, 4 less: each bar begins where the last one ended."""
    look = {way: {"marker": {"color": "#123456"}} for way in ("totals", "increasing", "decreasing")}
    found = bars(
        drawn(
            [{"type": "waterfall", "x": [0, 1, 2, 3], "y": [121, 9, -4, 126], "ids": list("abcd"),
              "measure": ["absolute", "relative", "relative", "absolute"], **look}],
            yaxis={"range": [0, 130]},
        )
    )  # fmt: skip
    unit = found["a"]["height"] / 121
    tops = {k: v["y"] for k, v in found.items()}
    feet = {k: v["y"] + v["height"] for k, v in found.items()}
    assert feet["a"] == feet["d"]
    assert feet["b"] == pytest.approx(tops["a"], abs=0.05)
    assert found["b"]["height"] == pytest.approx(9 * unit, abs=0.05)
    assert tops["c"] == pytest.approx(tops["b"], abs=0.05)
    assert feet["c"] == pytest.approx(tops["d"], abs=0.05)


def test_lying_bars_groups_bases_and_widths() -> None:
    """As Plotly places them: grouped bars share the room of one, overlaid ones have it all."""
    two = [
        {"type": "bar", "x": [0, 1], "y": [1, 2], "ids": ["a", "b"]},
        {"type": "bar", "x": [0, 1], "y": [3, 4], "ids": ["c", "d"]},
    ]
    side = bars(drawn(two, barmode="group", bargap=0.2))
    assert side["c"]["x"] == pytest.approx(side["a"]["x"] + side["a"]["width"], abs=0.02)
    over = bars(drawn(two, barmode="overlay", bargap=0.2))
    assert over["a"]["x"] == over["c"]["x"]
    assert over["a"]["width"] == pytest.approx(2 * side["a"]["width"], abs=0.05)
    lying = [
        {"type": "bar", "orientation": "h", "y": ["p", "q"], "base": [1, 2], "x": [1, 3], "ids": ["p", "q"]}
    ]
    found = bars(drawn(lying, xaxis={"range": [0, 5]}))
    unit = found["q"]["width"] / 3
    assert found["p"]["width"] == pytest.approx(unit, abs=0.05)
    assert found["q"]["x"] - found["p"]["x"] == pytest.approx(unit, abs=0.05)
    # The first name is the lowest, as Plotly has it; reversed, the highest.
    assert found["p"]["y"] > found["q"]["y"]
    turned = bars(drawn(lying, yaxis={"type": "category", "autorange": "reversed"}))
    assert turned["p"]["y"] < turned["q"]["y"]
    assert ([0, 1], [(-0.4, 0.4), (0.6, 1.4)]) == bar_places({"x": [0, 1], "y": [1, 1]}, 0.2, 0, 1)


def test_a_logarithmic_axis_has_equal_room_for_equal_ratios() -> None:
    """Ten times as much is as far everywhere, and what has no logarithm has no place."""
    axis = axis_of({"type": "log"}, [1, 10, 1000], [], 0.0, 300.0)
    one, ten, thousand = (axis.at(v) for v in (1, 10, 1000))
    assert thousand - ten == pytest.approx(2 * (ten - one))
    assert (None, None, None) == (axis.at(0), axis.at(-1), axis.at(None))
    assert ["1", "10", "100", "1,000"] == [text for _, text in axis.ticks()]
    ticks = axis_of({}, [0, 47], [0.0], 300.0, 0.0).ticks()
    assert ["0", "10", "20", "30", "40"] == [text for _, text in ticks]
    places = [at for at, _ in ticks]
    assert sorted(places, reverse=True) == places


def test_points_lie_where_their_values_are() -> None:
    """The middle of a range is the middle of the plot; a gap parts a line."""
    svg = drawn(
        [{"type": "scatter", "mode": "lines", "x": [0, 1, 2, 3, 4], "y": [0, 1, None, 1, 2], "line": {"width": 3}}],
        xaxis={"range": [0, 4]}, yaxis={"range": [0, 2]},
    )  # fmt: skip
    lines = re.findall(r'd="(M[^"]+)" fill="none"[^>]*stroke-width="3"', svg)
    assert 2 == len(lines)
    (first, _), (third, last) = (
        [tuple(map(float, p.split())) for p in line[1:].split("L")] for line in lines
    )
    box = ET.fromstring(svg).find(f".//{SVG}clipPath/{SVG}rect")
    left, top, width, height = (float(box.get(k)) for k in ("x", "y", "width", "height"))
    assert first == pytest.approx((left, top + height), abs=0.02)
    assert last == pytest.approx((left + width, top), abs=0.02)
    assert third == pytest.approx((left + 0.75 * width, top + height / 2), abs=0.02)


def test_a_dark_picture_is_readable_and_has_the_same_texts(digits) -> None:
    """Every colour of a mark stands out three to one from its ground."""
    light, dark = (digits.picture("samples", variant="int8", dark=d).svg for d in (False, True))
    assert texts(light) == texts(dark)
    assert light != dark

    def luminance(colour) -> float:
        linear = [
            c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour[:3]
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    ground = luminance(rgba(DARK.ground))
    for colour in re.findall(r'<(?:text|path)[^>]* fill="(#[0-9a-f]{6})"(?! fill-opacity)', dark):
        assert (luminance(rgba(colour)) + 0.05) / (ground + 0.05) >= 2.9, colour


def test_texts_are_text_and_lie_within_the_picture(digits) -> None:
    """A name can be searched and copied, and none runs over the edge of the page."""
    svg = digits.picture("difference", variant="int8", baseline="fp32").svg
    root = ET.fromstring(svg)
    assert "From fp32 to int8·auto" == texts(svg)[0]
    try:
        # The widest of the usual faces.
        face = ImageFont.truetype("DejaVuSans.ttf", 12)
    except OSError:
        pytest.skip("DejaVu Sans is not installed")
    ends = [
        float(text.get("x")) + float(text.get("font-size")) / 12 * face.getlength(text.text)
        for text in root.iter(f"{SVG}text")
        if text.get("text-anchor") is None and text.get("transform") is None
    ]
    assert len(ends) > 10
    assert max(ends) <= float(root.get("width"))


def test_every_number_bears_its_origin(digits) -> None:
    """A picture that is passed on must not turn an estimate into a measurement."""
    from rtlab.documents.figure import SIGNS
    from rtlab.questions.panels import answer
    from rtlab.questions.scene import Scene

    panel = answer("memory", Scene(digits.snapshot(), digits["int8"].facts))
    said = texts(digits.picture("memory", variant="int8").svg)
    assert {"estimated"} <= {f["origin"] for f in panel["facts"]}
    for fact in panel["facts"]:
        at = said.index(fact["key"])
        assert f"{SIGNS.get(fact['origin'], '')} {fact['value']}".strip() == said[at + 1]
    heads = " ".join(said)
    for column in panel["columns"]:
        if column["origin"]:
            assert f"{SIGNS[column['origin']]}\u00a0{column['title'].split()[0]}" in heads, column
    # What estimates is told below, too, and what each sign means.
    assert "● measured, ◐ reported, ○ estimated, ◌ predicted. rtlab" == said[-1]


def test_it_is_saved_as_svg_and_as_png(digits, tmp_path) -> None:
    """By the ending of the name; a file of the model is never written over."""
    from PIL import Image

    path = tmp_path / "x.svg"
    picture = digits.picture("memory", variant="int8", path=path)
    assert picture.svg == path.read_text(encoding="utf-8")
    digits.picture("memory", variant="int8", path=tmp_path / "x.png", width=500)
    with Image.open(tmp_path / "x.png") as image:
        assert (1000, "PNG") == (image.width, image.format)
        assert len(image.getcolors(1 << 24)) > 20
    with Image.open(io.BytesIO(picture.png(scale=1))) as image:
        assert 960 == image.width
    with pytest.raises(RtlabError, match=r"its ending names neither SVG nor PNG. Name it picture.svg"):
        picture.save(tmp_path / "x.gif")
    refused = r'Cannot draw "nothing": there is none of this name\. Choose layers, .*; or a tab, .*: timing, compare,'
    with pytest.raises(VariantError, match=refused):
        digits.picture("nothing", variant="int8")


def test_a_tab_is_drawn_by_what_it_shows_first(digits) -> None:
    """As the page opens it; a panel of that name comes before."""
    first = {"timing": "layers", "compare": "difference", "fusion": "why", "streams": "schedule"}
    for tab in TABS:
        drawn = digits.picture(tab.name, variant="int8", baseline="fp32")
        name = first.get(tab.name)
        if name is None and tab.name in PANELS:
            name = tab.name
            assert PANELS[name].tab == tab.name
        if name is not None:
            assert drawn.svg == digits.picture(name, variant="int8", baseline="fp32").svg, tab.name


def test_without_its_package_a_png_says_what_to_install(digits, monkeypatch) -> None:
    """SVG needs nothing; PNG says in three parts what it needs."""
    from rtlab.core import optional

    monkeypatch.setattr(optional.importlib.util, "find_spec", lambda _: None)
    picture = digits.picture("memory", variant="int8")
    with pytest.raises(
        Unavailable, match=r'Cannot make a PNG: package "resvg-py>=0.2" is not installed. Run pip'
    ):
        picture.png()


def test_what_xml_cannot_hold_is_replaced() -> None:
    """A name in a file may have any bytes; one of them would make the whole picture unreadable."""
    pen = Pen(LIGHT)
    pen.text((0.0, 0.0), "a\x00b\x1b[31m\ud800<&\uffff é")
    pen.rect((0.0, 0.0, 1.0, 1.0), "#000000", about='"\x08>')
    root = ET.fromstring(f"<svg>{''.join(pen.parts)}</svg>".encode())
    assert "a\ufffdb\ufffd[31m\ufffd<&\ufffd é" == root[0].text
    assert '"\ufffd>' == root[1][0].text


def test_a_text_is_cut_and_wrapped_to_its_room() -> None:
    """Nothing is lost by wrapping, and both ends stay when a name is cut."""
    long = "/inception1/branch5x5/reduce/conv/Conv" * 3
    short = cut(long, 11.0, 120.0)
    assert width_of(short, 11.0) <= 120.0
    assert (short[:3], short[-3:]) == (long[:3], long[-3:])
    lines = wrapped(f"a bc {long} d", 11.0, 120.0)
    assert all(width_of(line, 11.0) <= 120.0 for line in lines)
    assert f"abc{long}d" == "".join(lines).replace(" ", "")


def test_random_input_is_told_in_the_picture(tmp_path) -> None:
    """A picture is passed on alone: what its errors rest on goes with it."""
    model = hostile_model()
    study = Study(model, data=CalibrationData.random(model, samples=4))
    study.add("int8", target="cpu", backend="onnxruntime")
    said = " ".join(texts(study.run().picture("errors", variant="int8").svg))
    assert "random input" in said


def column(title: str, unit: str = "", *, numeric: bool = False, origin: str = "") -> dict:
    return {"title": title, "unit": unit, "numeric": numeric, "origin": origin}


def tabled(columns: list[dict], *rows: list, facts: tuple[dict, ...] = (), width: float = 960.0) -> str:
    """A picture of a table made by hand."""
    lists = dict.fromkeys(("figures", "scripts", "notes"), ())
    panel = {"title": "T", "lead": "", "problem": "", "facts": facts, "columns": columns, **lists}
    return picture(
        {**panel, "rows": [{"cells": row} for row in rows]}, about="m", sources=[], width=width
    ).svg


@pytest.mark.parametrize("width", [960.0, 300.0])
def test_no_number_is_cut_and_no_heading_within_a_word(width) -> None:
    """What is counted stands in full, however many columns there are; what is measured has three digits."""
    names = ["/inception1/branch5x5/reduce/norm/BatchNormalization", "/stem/conv/Conv"]
    heads = [f"{word} of values" for word in ("Elements", "Saturated", "Largest", "Precision", "Streams")] * 3
    columns = [column("Value"), *(column(h, numeric=True, origin="measured") for h in heads)]
    numbers = [3_070_123_000, 102_400, 102_401.0, -1_234, 0, 0.123456, 12.34567] + [1_048_576] * 8
    said = texts(tabled(columns, *([n, *numbers] for n in names), width=width))
    for told in ("3,070,123,000", "102,400", "102,401", "−1,234", "0", "0.123", "12.3"):
        assert 2 == said.count(told), told
    assert 16 == said.count("1,048,576")
    words = {w for text in said for w in text.replace("●\u00a0", "").split()}
    assert {"Elements", "Saturated", "Largest", "Precision", "Streams", "values"} <= words
    assert not {w for w in words if "…" in w and w[0].isdigit()}


def test_a_text_that_has_room_is_whole() -> None:
    """Short words beside a free page were cut by what is lost of a width when a gap is added and taken off."""
    for verdict in ("not asked", "n" * 7, "asked"):
        said = texts(tabled([column("First node"), column("Verdict")], ["p2o.Conv.2", verdict]))
        assert {verdict, "p2o.Conv.2"} <= set(said)


def test_sentences_of_a_table_and_of_a_fact_are_wrapped() -> None:
    """Every word of them is there, in order, within the picture."""
    long = [" ".join(f"{word}{k}" for k in range(60)) for word in ("cause", "remedy", "evidence")]
    facts = ({"key": "Quantization", "value": " ".join(f"fact{k}" for k in range(40)), "origin": ""},)
    columns = [column("Rule"), *map(column, ("Cause", "Remedy", "Evidence")), column("Nodes", numeric=True)]
    svg = tabled(columns, ["r1", *long, 311], ["r2", *long, 7], facts=facts)
    said = " ".join(texts(svg))
    assert all(2 == said.count(text) for text in long)
    assert facts[0]["value"] in said
    assert "Rule: r1 · Nodes: 311" in said
    root = ET.fromstring(svg)
    for text in root.iter(f"{SVG}text"):
        size, bold = float(text.get("font-size")), text.get("font-weight") is not None
        assert float(text.get("x")) + width_of(text.text, size, bold=bold) <= 960
    for rect in root.iter(f"{SVG}rect"):
        if rect.get("x"):
            assert float(rect.get("x")) + float(rect.get("width")) <= 940

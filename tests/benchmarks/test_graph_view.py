"""The graph view in numbers: from a payload to the picture, and how evenly it moves; beside Netron where it can."""

from __future__ import annotations

import base64
import dataclasses
import functools
import random
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import netron
import onnx
import psutil
import pytest
from onnx import TensorProto, helper
from playwright.sync_api import Browser, Page, Route
from playwright.sync_api import TimeoutError as Expired

import rtlab
from rtlab.core.model import Model
from rtlab.documents.serialization import encode
from rtlab.web.page.graph import engine_view, source_graph

WIDGETS = Path(__file__).parents[2] / "widgets"

#: Milliseconds of one frame on a display of 60 Hz, and what 95 of 100 frames of a moving picture may take.
FRAME = 1000 / 60
EVEN = 25

#: Frames from the bytes of a payload to its picture: one second for 10,000 nodes, two for 20,000.
DRAWN = {1_000: 60, 5_000: 30, 10_000: 60, 20_000: 120}

#: Scales of the sweeps: 0 is the whole graph; the others lie on both sides of where more of a box is drawn.
SCALES = (0, 0.05, 0.16, 0.2, 0.41, 0.45, 0.7, 1.4)

#: Milliseconds that Netron gets. It does not finish some graphs at all.
NETRON_PATIENCE = 60_000


def random_dag(*, nodes: int) -> Model:
    """A graph with nothing to repeat: each node reads one to three of the last hundred or so."""
    drawn = random.Random(0)  # noqa: S311 - the same graph every time
    made, names = [], ["x"]
    for i in range(nodes):
        far = [int(drawn.expovariate(1 / 40)) for _ in range(drawn.choice((1, 1, 2, 3)))]
        reads = {names[max(0, i - k)] for k in far}
        made.append(
            helper.make_node("Relu" if len(reads) == 1 else "Sum", sorted(reads), [f"t{i}"], name=f"n{i}")
        )
        names.append(f"t{i}")
    read = {name for node in made for name in node.input}
    value = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT, shape=[1, 8])
    graph = helper.make_graph(
        made, "random_dag", [value("x")], [value(n) for n in names[1:] if n not in read],
        value_info=[value(n) for n in names[1:] if n in read],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return rtlab.load(proto)


MAKERS: Mapping[str, Callable[..., Model]] = {
    "inception_chain": rtlab.samples.inception_chain,
    "transformer_stack": rtlab.samples.transformer_stack,
    "random_dag": random_dag,
}


@functools.cache
def model_of(architecture: str, nodes: int) -> Model:
    return MAKERS[architecture](nodes=nodes)


@functools.cache
def payload_of(architecture: str, nodes: int) -> str:
    """A graph as the kernel sends it, in base64."""
    return base64.b64encode(encode(source_graph(model_of(architecture, nodes)))).decode()


def engine_of(architecture: str, nodes: int) -> str:
    """What ONNX Runtime makes of a graph, as the kernel sends it, in base64."""
    model = model_of(architecture, nodes)
    study = rtlab.Study(model, data=rtlab.CalibrationData.random(model, samples=1))
    study.add("fp32", backend="onnxruntime")
    study.run(compare=False)
    return base64.b64encode(encode(engine_view(study["fp32"].facts, model))).decode()


class Bench:
    """The page of ``widgets/bench``, which draws as the widget does."""

    def __init__(self, page: Page, script: str) -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.route("**/*", lambda route: self._answer(route, script))
        page.goto("http://127.0.0.1/")
        page.wait_for_function("window.rtlab")

    @staticmethod
    def _answer(route: Route, script: str) -> None:
        path = urlsplit(route.request.url).path
        if path == "/":
            page = (
                '<!doctype html><meta charset="utf-8"><body><script type="module" src="/bench.js"></script>'
            )
            route.fulfill(body=page, content_type="text/html")
        elif path == "/bench.js":
            route.fulfill(body=script, content_type="text/javascript")
        else:
            route.abort()

    def call(self, function: str, *arguments: Any) -> Any:
        """The result of a function of the page; what it threw fails the test."""
        result = self.page.evaluate("([f, a]) => window.rtlab[f](...a)", [function, list(arguments)])
        assert [] == self.errors
        return result

    def show(self, *graphs: tuple[str, int]) -> list[dict[str, float]]:
        return self.call("show", [payload_of(*graph) for graph in graphs])


@pytest.fixture(scope="module")
def script() -> str:
    node = shutil.which("node")
    assert node, "Node.js is not on the PATH, so that the bench page cannot be built. Run tests/run setup."
    subprocess.run([node, "build.mjs", "--bench"], cwd=WIDGETS, check=True, capture_output=True)
    return (WIDGETS / "bench" / "dist" / "bench.js").read_text()


@pytest.fixture
def bench(chromium: Browser, script: str) -> Iterator[Bench]:
    context = chromium.new_context(viewport={"width": 1440, "height": 760})
    yield Bench(context.new_page(), script)
    context.close()


def p95(times: list[float]) -> float:
    return statistics.quantiles(times, n=20)[-1]


def worst(sweep: Callable[[], list[float]], bound: float) -> float:
    """The 95th percentile of a sweep, taken again where it is high: what the machine does beside it does not return."""
    best = p95(sweep())
    for _ in range(2):
        if best > bound:
            best = min(best, p95(sweep()))
    return best


@dataclasses.dataclass(frozen=True)
class Peer:
    """Netron on a file: seconds until it has drawn it, and the milliseconds of a usual frame while it scrolls."""

    seconds: float
    frame: float


SCROLL = """() => new Promise(done => {
  const pane = document.querySelector('#target');
  const times = [];
  let last = 0;
  const tick = now => {
    if (last) times.push(now - last);
    last = now;
    if (times.length === 30) return done(times);
    pane.scrollTop += times.length % 20 < 10 ? 24 : -24;
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
})"""


def netron_on(chromium: Browser, file: Path) -> Peer | None:
    """Opens a file in Netron; None where it does not finish in time."""
    address = netron.start(str(file), browse=False)
    url = f"http://{address[0]}:{address[1]}"
    context = chromium.new_context(viewport={"width": 1440, "height": 760})
    context.route(
        "**/*", lambda route: route.continue_() if route.request.url.startswith(url) else route.abort()
    )
    # Its page asks once for consent, which is not what we measure.
    context.add_cookies([{"name": "consent", "value": str(int(time.time() * 1000)), "url": url}])
    page = context.new_page()
    began = time.monotonic()
    try:
        page.goto(url)
        page.wait_for_function(
            """() => {
              const more = document.querySelector('#message-button');
              if (document.body.classList.contains('alert') && more) more.click();
              return document.body.classList.contains('default') && document.querySelector('svg .node');
            }""",
            timeout=NETRON_PATIENCE,
            polling=50,
        )
        seconds = time.monotonic() - began
        # Its page has no eval, which Playwright's own call needs.
        wanted = {"expression": f"({SCROLL})()", "awaitPromise": True, "returnByValue": True}
        answer = context.new_cdp_session(page).send("Runtime.evaluate", wanted)
        return Peer(seconds, statistics.median(answer["result"]["value"]))
    except Expired:
        return None
    finally:
        context.close()
        netron.stop(address)


@pytest.mark.parametrize(
    ("architecture", "nodes", "times_faster"),
    [
        ("inception_chain", 1_000, 4),
        pytest.param("transformer_stack", 1_000, 4, marks=pytest.mark.whole),
        pytest.param("random_dag", 1_000, 4, marks=pytest.mark.whole),
        pytest.param("inception_chain", 10_000, 10, marks=pytest.mark.whole),
    ],
)
def test_a_graph_is_on_screen_many_times_sooner_than_in_netron(
    benchmark,
    care,
    bench: Bench,
    chromium: Browser,
    tmp_path: Path,
    architecture: str,
    nodes: int,
    times_faster: int,
) -> None:
    """From the payload to the picture, and then at least as evenly; Netron from its page to its picture."""
    file = tmp_path / f"{architecture}.onnx"
    onnx.save(model_of(architecture, nodes).proto(), file)
    payload_of(architecture, nodes)
    # The page's own start is behind it, as in a notebook with its second graph.
    bench.show((architecture, 1_000))
    [steps] = benchmark.pedantic(lambda: bench.show((architecture, nodes)), rounds=1)
    ours = statistics.median(bench.call("pan", 0.7, 30))
    theirs = netron_on(chromium, file)
    benchmark.extra_info |= {k: round(v, 1) for k, v in steps.items()} | {"frame_ms": round(ours, 1)}
    assert steps["total"] / FRAME <= care.most(DRAWN[nodes])
    if theirs is None:
        return
    benchmark.extra_info |= {"netron_s": round(theirs.seconds, 2), "netron_frame_ms": round(theirs.frame, 1)}
    assert care.least(times_faster) <= theirs.seconds * 1e3 / steps["total"]
    assert ours <= care.most(theirs.frame * 1.05)


@pytest.mark.parametrize("nodes", [10_000, pytest.param(20_000, marks=pytest.mark.whole)])
@pytest.mark.parametrize("architecture", MAKERS)
def test_large_graphs_are_drawn_in_time_and_move_evenly_at_every_scale(
    benchmark, care, bench: Bench, architecture: str, nodes: int
) -> None:
    """One or two seconds to the picture; then 60 frames a second from the whole graph to one box, without a GPU."""
    nodes = care.size(nodes, 5_000)
    payload_of(architecture, nodes)
    bench.show((architecture, 1_000))
    [steps] = benchmark.pedantic(lambda: bench.show((architecture, nodes)), rounds=1)
    bound, frames = care.most(EVEN), care.size(40, 20)
    pans = {
        scale: worst(functools.partial(bench.call, "pan", scale, frames), bound)
        for scale in care.size(SCALES, SCALES[::3])
    }
    zoom = worst(lambda: bench.call("zoom", 4 * frames), bound)
    # As with the sweeps: what the machine does beside it does not return.
    lit = min(
        statistics.median(
            bench.call("light", 0, [k, k + 1, k + 2]) for k in range(0, nodes // 2, nodes // 14)
        )
        for _ in range(care.size(3, 1))
    )
    benchmark.extra_info |= {k: round(v, 1) for k, v in steps.items()}
    benchmark.extra_info |= {f"pan_{scale}_p95_ms": round(value, 1) for scale, value in pans.items()}
    benchmark.extra_info |= {"zoom_p95_ms": round(zoom, 1), "lit_ms": round(lit, 1)}
    benchmark.extra_info |= {"overlaps": bench.call("overlaps", 0), "heap_mb": bench.call("heap") >> 20}
    if architecture != "random_dag":
        benchmark.extra_info["crossings"] = bench.call("crossings", 0)
    assert benchmark.extra_info["overlaps"] == 0
    assert steps["total"] / FRAME <= care.most(DRAWN[nodes])
    assert max(zoom, *pans.values()) <= bound
    # 16 ms; where the machine itself is slow, less than it takes to draw the picture anew in the same run.
    assert lit <= care.most(max(FRAME, steps["frame"]))


@pytest.mark.parametrize(
    "architecture", ["transformer_stack", pytest.param("inception_chain", marks=pytest.mark.whole)]
)
def test_a_hundred_thousand_open_nodes_are_drawn_in_four_seconds_and_move_evenly(
    benchmark, care, bench: Bench, chromium: Browser, architecture: str
) -> None:
    """At the 95th percentile 20 ms a frame, the whole graph in view included; 500 MB of the page's own memory."""
    nodes = care.size(100_000, 5_000)
    payload_of(architecture, nodes)
    bench.show((architecture, 1_000))
    [steps] = benchmark.pedantic(lambda: bench.show((architecture, nodes)), rounds=1)
    processes = chromium.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    memory = max(psutil.Process(each["id"]).memory_full_info().uss for each in processes)
    bound, frames = care.most(20), care.size(40, 20)
    pans = {scale: worst(functools.partial(bench.call, "pan", scale, frames), bound) for scale in SCALES[::3]}
    benchmark.extra_info |= {k: round(v, 1) for k, v in steps.items()} | {"memory_mb": memory >> 20}
    benchmark.extra_info |= {f"pan_{scale}_p95_ms": round(value, 1) for scale, value in pans.items()}
    assert steps["total"] <= care.most(4_000)
    assert max(pans.values()) <= bound
    assert memory <= 500e6


def test_two_linked_panes_of_ten_thousand_nodes_move_evenly_together(benchmark, care, bench: Bench) -> None:
    """What no other viewer does: one hand moves both pictures, 60 times a second."""
    graph, bound = ("inception_chain", care.size(10_000, 5_000)), care.most(EVEN)
    bench.show(graph, graph)
    benchmark.pedantic(bench.call, ("together", 1, 60), rounds=1)
    times = {
        s: worst(functools.partial(bench.call, "together", s, 60), bound)
        for s in care.size((0.1, 0.5, 1), (0.5,))
    }
    lit = statistics.median(
        bench.call("light", 0, [k]) + bench.call("light", 1, [k])
        for k in range(0, care.size(5_000, 2_500), 700)
    )
    benchmark.extra_info |= {f"together_{scale}_p95_ms": round(each, 1) for scale, each in times.items()}
    benchmark.extra_info["both_lit_ms"] = round(lit, 1)
    assert max(times.values()) <= bound
    assert lit <= care.most(FRAME)


def test_a_click_lights_both_sides_within_one_frame(benchmark, care, bench: Bench) -> None:
    """In the real widget, from the mouse button to both pictures: a node of 10,000 and the layer it went into."""
    size = care.size(10_000, 3_000)
    bench.call("widget", payload_of("transformer_stack", size), engine_of("transformer_stack", size))
    nodes = [f"/layer{k}/attention/norm/LayerNormalization" for k in range(3, care.size(300, 90), 27)]

    def click(node: str) -> float:
        # On a loaded machine the picture may be drawn anew after it was ready first.
        at: Any = bench.page.wait_for_function("node => rtlab.boxAt('node', node)", arg=node).json_value()
        bench.page.mouse.move(at["x"], at["y"])
        bench.call("watchClick")
        bench.page.mouse.click(at["x"], at["y"])
        took: float = bench.call("clickTook")
        assert [layer for layer in bench.call("layers") if node in layer]
        return took

    took = [click(node) for node in nodes[1:]]
    benchmark.pedantic(click, (nodes[0],), rounds=1)
    benchmark.extra_info |= {"lit_ms": round(statistics.median(took), 1), "slowest_ms": round(max(took), 1)}
    assert statistics.median(took) <= care.most(FRAME)

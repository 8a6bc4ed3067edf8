"""Reports of several lines: comparisons of Polygraphy, kernels of Nsight Systems, providers of ONNX Runtime, times.

Each function takes a text and gives what it reports, nothing where it has no such report.
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence

from rtlab.backends.readers import severity
from rtlab.backends.readers.messages import describe_remedy, find_messages, quote_first, shorten
from rtlab.core.message import MessageMatch
from rtlab.core.phrases import pluralize

_ORT_SOURCE = "ONNX Runtime's documentation, TensorRT Execution Provider"
#: Programs that the reports are of.
_POLYGRAPHY, _NSIGHT, _ORT, _TORCH = "Polygraphy", "Nsight Systems", "ONNX Runtime", "Torch-TensorRT"
_NO_TIMES = "rtlab reads no times of it."
_NUMBER = r"[-+\d.einfa]+"


def find_reports(text: str, numbers: Sequence[int] = ()) -> tuple[MessageMatch, ...]:
    """Every message and report of a text, failures first; empty for text of no known form.

    ``numbers`` are those of its lines where they do not count from 1.
    """
    text, numbers = _restore(text, numbers)
    reports = [
        m
        for find in (
            _compare,
            _list_kernels,
            _partition,
            _list_builds,
            _time,
            _list_unconverted,
            _list_devices,
        )
        for m in find(text)
    ]
    ids = {r.id for r in reports}
    messages = [
        m
        for m in find_messages(text, numbers)
        if not (m.id == "provider-fallback" and "provider-partition" in ids)
        and not (m.id == "torch-unsupported" and m.id in ids)
        and not (m.id == "build-failed" and "comparison" in ids)
    ]
    found = [_note_cut(m, text) for m in (*messages, *reports)]
    return tuple(sorted(found, key=lambda m: not m.failed))


#: What mail programs and forums write for straight quotes and rows of hyphens.
_TYPOGRAPHY = str.maketrans({"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'", "\u2014": "---"})
#: The least columns at which a terminal wraps, and breaks within words from which on it is sure that it does.
_COLUMNS, _BREAKS = 60, 2


def _restore(text: str, numbers: Sequence[int]) -> tuple[str, Sequence[int]]:
    """A text as it was printed: straight quotes, and lines whole that were wrapped at a number of columns.

    With the numbers of the lines that are left, empty where they count from 1. Text is wrapped where its longest lines
    are of one length and some of them end within a word.
    """
    lines = text.translate(_TYPOGRAPHY).split("\n")
    width = max(map(len, (line.rstrip("\r") for line in lines)))
    pairs = [(a.rstrip("\r"), b) for a, b in itertools.pairwise(lines)]
    breaks = [re.fullmatch(r"\w\w", a[-1:] + b[:1]) is not None for a, b in pairs if len(a) == width]
    if width < _COLUMNS or sum(breaks) < max(_BREAKS, len(breaks) / 3):
        return "\n".join(lines), numbers
    whole, places = lines[:1], [0]
    for index, (line, following) in enumerate(pairs, 1):
        mark = severity.parse_mark(following)
        is_own = mark is not None and mark.text != following.strip()
        if len(line) == width and following.strip() and not is_own:
            whole[-1] = whole[-1].rstrip("\r") + following
        else:
            whole.append(following)
            places.append(index)
    return "\n".join(whole), [numbers[p] if numbers else p + 1 for p in places]


def _note_cut(match: MessageMatch, text: str) -> MessageMatch:
    """A message with the note that a name which the text begins or ends with may be cut off."""
    if not match.names or not (text.endswith(match.names) or text.startswith(match.names)):
        return match
    return dataclasses.replace(
        match, evidence=f"{match.evidence} The text begins or ends with a name, which may be cut off."
    )


#: Rules of reports that say how long something took, or that it ended well.
MEASUREMENTS = frozenset({"latency", "engine-time", "outcome"})

# Polygraphy.

_COMPARING = re.compile(r"Comparing Output: '(?P<name>[^']*)")
_STATS = re.compile(r"(?P<who>[^|\]]*?)(?:: (?P<name>\S+))? \| Stats: (?P<stats>.*)")
_TOLERANCE = re.compile(r"Minimum Required Tolerance: (?P<text>.*?\[abs=\S+\] OR \[rel=\S+\])")
_VERDICT = re.compile(
    r"(?P<verdict>PASSED|FAILED) \| (?:Output: [`'](?P<name>[^'`]*)[`'] \| )?(?P<why>Difference (?:exceeds|is within) "
    r"tolerance(?: \([^)]*\))?|Will not compare outputs of different shapes)"
)
_MISMATCHED = re.compile(r"FAILED \| (?:\w+ \| )?Mismatched outputs: \[(?P<names>.*)")


@dataclasses.dataclass
class _Tensor:
    """One compared tensor: its statistics by runner, what tolerance it needs, and the verdict."""

    name: str
    stats: dict[str, str] = dataclasses.field(default_factory=dict)
    tolerance: str = ""
    verdict: str = ""
    why: str = ""

    def describe(self) -> str:
        """Its numbers, as they are printed."""
        parts = [f"{who}: {', '.join(_pick_stats(stats))}" for who, stats in self.stats.items()]
        return "; ".join([*parts, *([f"needs {self.tolerance}"] if self.tolerance else []), self.why])


def _pick_stats(stats: str) -> list[str]:
    """Mean, least and largest of a row of statistics."""
    return re.findall(rf"\b(?:mean|min|max)={_NUMBER}", stats)


def _read_comparison(text: str) -> list[_Tensor]:
    """The tensors that Polygraphy compared, in its order; those that its summary alone lists are without numbers."""
    tensors: list[_Tensor] = []
    mismatched_names: list[str] = []
    for line in text.split("\n"):
        if match := _COMPARING.search(line):
            tensors.append(_Tensor(match["name"]))
        elif match := _VERDICT.search(line):
            name = match["name"] or (tensors[-1].name if tensors else "")
            if not tensors or tensors[-1].verdict or tensors[-1].name != name:
                tensors.append(_Tensor(name))
            tensors[-1].verdict, tensors[-1].why = match["verdict"], match["why"].lower()
        elif match := _MISMATCHED.search(line):
            mismatched_names += re.findall(r"'([^']*)'", match["names"])
        elif tensors and (match := _TOLERANCE.search(line)):
            tensors[-1].tolerance = match["text"]
        elif tensors and (match := _STATS.search(line)):
            tensors[-1].stats[match["who"].strip()] = match["stats"]
    if any(t.verdict == "FAILED" for t in tensors):
        return tensors
    return [*tensors, *(_Tensor(n, verdict="FAILED") for n in mismatched_names)]


def _compare(text: str) -> Iterator[MessageMatch]:
    """Polygraphy's comparison: the first tensor that differs, or that all agree."""
    if "Comparing Output" not in text and "tolerance" not in text and "Mismatched outputs" not in text:
        return
    tensors = [t for t in _read_comparison(text) if t.verdict]
    failures = [t for t in tensors if t.verdict == "FAILED"]
    if failures:
        yield _describe_difference(failures, tensors)
    elif tensors:
        count = len(tensors)
        yield MessageMatch(
            "comparison",
            f"Polygraphy prints PASSED for {count} outputs."
            if count > 1
            else f'Polygraphy prints PASSED for output "{tensors[-1].name}".',
            "rtlab reads no cost in it.",
            "None, if that is the tolerance that was wanted.",
            "; ".join(f'"{t.name}": {t.describe()}' for t in tensors[:3]) + ".",
            tuple(t.name for t in tensors if t.name),
            product=_POLYGRAPHY,
        )


def _describe_difference(failures: Sequence[_Tensor], tensors: Sequence[_Tensor]) -> MessageMatch:
    """The first tensor that differs, its numbers, and the last before it that agrees."""
    first = failures[0]
    before = tensors[: tensors.index(first)]
    agreeing = f' PASSED stands before it at "{before[-1].name}" ({before[-1].describe()}).' if before else ""
    not_finite = [who for who, stats in first.stats.items() if re.search(r"=(?:nan|inf|-inf)\b", stats)]
    runners = [w for w in not_finite if not w.endswith("Difference")]
    nature = f"; its statistics are not finite in {runners[0]}" if runners else ""
    return MessageMatch(
        "comparison",
        f'The first tensor for which Polygraphy prints FAILED is "{first.name}"{nature}.'
        if first.name
        else "Polygraphy prints FAILED for an output.",
        f"FAILED stands at {len(failures)} of {len(tensors)} verdicts in the text.",
        describe_remedy(
            "Without intermediate tensors, compare again with --trt-outputs mark all --onnx-outputs mark all; if a "
            "narrower type is the cause, keep the nodes before the first one that differs in FP32.",
            "Polygraphy, comparator/compare.py",
            f"{_POLYGRAPHY} 0.30 and later",
        ),
        f"{first.describe() or 'Listed among the outputs that differ'}.{agreeing}",
        (first.name,) if first.name else (),
        product=_POLYGRAPHY,
    )


# Nsight Systems.

_HEAD = re.compile(
    r"^.*?\"?Time ?\(%\)\"?[ \t,]+\"?Total Time \((?P<unit>ns|us|ms|s)\)\"?[ \t,]+\"?Instances\"?"
    r"(?:[ \t,]+\"?(?:Avg|Average|Med|Median|Min|Minimum|Max|Maximum|StdDev)(?: ?\(\w+\))?\"?)*"
    r"[ \t,]+\"?Name\"?[ \t]*\r?$",
    re.MULTILINE,
)
_COLUMN = re.compile(
    r"Time ?\(%\)|Total Time \(\w+\)|Instances|(?:Avg|Average|Med|Median|Min|Minimum|Max|Maximum|StdDev)(?: ?\(\w+\))?"
)
_UNITS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
_MOVING = re.compile(
    r"(?i)reformat|copypacked|permut|(?<!conv)(?<!conv_)transpose|nchwto|nhwcto|memcpy|memset|\bcast"
)
#: Kernels that the finding lists, and the share of those that only move data from which it names them.
_LISTED, _MOVED = 5, 0.05


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A row of the table: milliseconds of all launches in the capture."""

    name: str
    milliseconds: float
    launches: int

    def describe(self) -> str:
        """Its numbers in words."""
        mean = 1e3 * self.milliseconds / self.launches if self.launches else 0.0
        launches = pluralize(self.launches, "launch", "launches")
        return f'"{shorten(self.name)}" {self.milliseconds:.4g} ms in {launches} of {mean:.4g} µs'


def read_kernels(text: str) -> list[Kernel]:
    """The rows of the last kernel table in a text, in text or CSV."""
    heads = [*_HEAD.finditer(text)]
    if not heads:
        return []
    head = heads[-1]
    scale, is_csv = _UNITS[head["unit"]], "," in head[0]
    numbers = len(_COLUMN.findall(head[0]))
    kernels: list[Kernel] = []
    for line in text[head.end() :].lstrip("\r\n").split("\n"):
        cells = next(csv.reader([line.strip()]), []) if is_csv else line.split(None, numbers)
        if cells and set(cells[0]) == {"-"}:
            continue
        try:
            values = [float(c.replace(",", "")) for c in cells[:3]]
        except ValueError:
            break
        if len(cells) <= numbers or len(values) < 3:
            break
        kernels.append(Kernel(cells[-1].strip(), values[1] * scale, int(values[2])))
    return kernels


def _list_kernels(text: str) -> Iterator[MessageMatch]:
    """The kernels that take most of the time, and those that only move data."""
    kernels = sorted(read_kernels(text), key=lambda k: -k.milliseconds)
    total = sum(k.milliseconds for k in kernels)
    if not kernels or not total:
        return
    count = pluralize(len(kernels), "kernel")
    cost = f"{count} in the table together take {total:.4g} ms (measured, Nsight Systems)."
    remedy = describe_remedy(
        "With the engine's layers beside the table (trtexec --exportLayerInfo --profilingVerbosity=detailed), kernels "
        "are joined to them by tactic.",
        "NVIDIA Nsight Systems' documentation, cuda_gpu_kern_sum",
        f"{_NSIGHT} 2021 and later",
    )
    first = kernels[0]
    yield MessageMatch(
        "gpu-kernels",
        f'Kernel "{shorten(first.name)}" takes {100 * first.milliseconds / total:.3g} % of the time of the kernels in '
        "the table.",
        cost,
        remedy,
        "; ".join(k.describe() for k in kernels[:_LISTED]) + ".",
        product=_NSIGHT,
    )
    moving = [k for k in kernels if _MOVING.search(k.name)]
    share = sum(k.milliseconds for k in moving) / total
    if share >= _MOVED:
        yield MessageMatch(
            "gpu-copies",
            f"{pluralize(len(moving), 'kernel')} with copies, casts or reorderings of data in the name: "
            f"{100 * share:.3g} % of the time of the kernels in the table.",
            cost,
            remedy,
            "; ".join(k.describe() for k in moving[:_LISTED]) + ".",
            product=_NSIGHT,
        )


# Providers of ONNX Runtime.

_SUBGRAPHS = re.compile(
    r"number of subgraphs running on TensorRT execution provider is (?P<count>\d+)|"
    r"(?P<whole>Whole graph will run on TensorRT execution provider)|"
    r"(?P<none>No graph will run on TensorRT execution provider)"
)
_PLACED = re.compile(
    r"(?:Node\(s\)|All nodes) placed on \[(?P<provider>\w+)\]\. Number of nodes: (?P<count>\d+)"
)
_NODE = re.compile(r"VerifyEachNodeIsAssignedToAnEp\]\s+(?P<op>[\w.]+) \((?P<name>.+)\)\s*$")
_COPY = re.compile(r"Add (?P<op>Memcpy\w+) (?:before|after) (?P<name>\S+) for (?P<provider>\w+)")
_COPIES = re.compile(
    r"(?P<count>\d+) Memcpy nodes are added to the graph (?P<graph>\S*) for (?P<provider>\w+)"
)
_TENSORRT = re.compile("TensorrtExecutionProvider|NvTensorRTRTX")
_CPU = "CPUExecutionProvider"


@dataclasses.dataclass(frozen=True)
class PlacedNode:
    """A node and the provider that runs it; ``microseconds`` where it was timed."""

    name: str
    op: str
    provider: str
    microseconds: float | None = None

    def describe(self) -> str:
        """Its operator and name, and the time."""
        time = "" if self.microseconds is None else f" {self.microseconds:.4g} µs"
        return f'{self.op} "{shorten(self.name)}"{time}'


def describe_placement(
    nodes: Sequence[PlacedNode], counts: dict[str, int] | None = None, subgraphs: int | None = None
) -> Iterator[MessageMatch]:
    """Which provider runs which node, into how many subgraphs that cuts the model, and its copies.

    ``counts`` are nodes by provider where not all of them are listed.
    """
    counts = counts or {
        p: sum(n.provider == p for n in nodes) for p in dict.fromkeys(n.provider for n in nodes)
    }
    count = sum(c for p, c in counts.items() if _TENSORRT.search(p))
    kernels = [n for n in nodes if _TENSORRT.search(n.provider)]
    if subgraphs is None and len(kernels) == count:
        # Each node of TensorRT is a subgraph, but for copies.
        subgraphs = sum(not n.op.startswith("Memcpy") for n in kernels)
    engines = count if subgraphs is None else subgraphs
    others = {p: c for p, c in counts.items() if not _TENSORRT.search(p)}
    if not engines and not any(_TENSORRT.search(p) for p in counts):
        return
    outside = [n for n in nodes if n.provider in others and not n.op.startswith("Memcpy")]
    where = " and ".join(
        f"{pluralize(c, 'node')} on {p}" for p, c in sorted(others.items(), key=lambda x: -x[1])
    )
    listed = "; ".join(
        f"{p}: {', '.join(n.describe() for n in nodes if n.provider == p) or 'not listed'}" for p in counts
    )
    elsewhere = f"; other nodes: {where}." if others else "."
    yield MessageMatch(
        "provider-partition",
        (
            f"{pluralize(count, 'node')} of the placement, a subgraph or a copy each, "
            f"{'is' if count == 1 else 'are'} on TensorRT's provider{elsewhere}"
            if subgraphs is None
            else f"TensorRT's provider gets {pluralize(engines, 'subgraph')} of the model{elsewhere}"
        )
        if engines
        else f"TensorRT's provider gets nothing of the model{elsewhere}",
        _sum_times(outside),
        describe_remedy(
            "If more is to run there: replace or remove the operators between the subgraphs, and raise "
            "trt_min_subgraph_size if they are small. CUDAExecutionProvider behind TensorrtExecutionProvider keeps the "
            "rest on the GPU.",
            _ORT_SOURCE,
            f"{_ORT} 1.12 and later",
        ),
        f"{shorten_list(listed)}." if listed else "The log counts them and lists no nodes.",
        tuple(n.name for n in outside),
        product=_ORT,
    )
    copies = [n for n in nodes if n.op.startswith("Memcpy")]
    if copies:
        yield _describe_copies(copies, len(copies))


def shorten_list(text: str) -> str:
    """A list of nodes up to a length that can be read."""
    return text if len(text) <= 900 else f"{text[:900].rpartition(', ')[0]}, and more"


def _sum_times(nodes: Sequence[PlacedNode]) -> str:
    times = [n.microseconds for n in nodes if n.microseconds is not None]
    if not times:
        return _NO_TIMES
    return f"Nodes outside TensorRT take {sum(times):.4g} µs (measured by ONNX Runtime)."


def _describe_copies(copies: Sequence[PlacedNode], count: int) -> MessageMatch:
    listed = ", ".join(n.describe() for n in copies)
    times = [n.microseconds for n in copies if n.microseconds is not None]
    return MessageMatch(
        "provider-copies",
        f"{pluralize(count, 'copy', 'copies')} between CPU and GPU, where the provider changes.",
        f"Copies take {sum(times):.4g} µs (measured by ONNX Runtime)." if times else _NO_TIMES,
        describe_remedy(
            "If they cost too much, keep neighbours on one device; CUDA graphs need a model without such copies.",
            "microsoft/onnxruntime, core/optimizer/transformer_memcpy.cc",
            f"{_ORT} 1.12 and later",
        ),
        f"{shorten_list(listed) or 'The log counts them and names none'}.",
        tuple(n.name for n in copies),
        product=_ORT,
    )


@dataclasses.dataclass
class _Placement:
    """What a log of ONNX Runtime says of its providers: nodes by provider, those that it lists, and copies."""

    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    nodes: list[PlacedNode] = dataclasses.field(default_factory=list)
    copies: list[PlacedNode] = dataclasses.field(default_factory=list)
    copy_count: int = 0
    subgraphs: int | None = None


def _read_placement(text: str) -> _Placement:
    placement, provider = _Placement(), ""
    for line in text.split("\n"):
        if "Node placements" in line:
            # Another session's.
            placement.counts, placement.nodes = {}, []
        elif match := _SUBGRAPHS.search(line):
            placement.subgraphs = int(match["count"] or (1 if match["whole"] else 0))
        elif match := _PLACED.search(line):
            provider = match["provider"]
            placement.counts[provider] = placement.counts.get(provider, 0) + int(match["count"])
        elif provider and (match := _NODE.search(line)):
            placement.nodes.append(PlacedNode(match["name"], match["op"], provider))
        elif match := _COPY.search(line):
            placement.copies.append(PlacedNode(match["name"], match["op"], match["provider"]))
        elif match := _COPIES.search(line):
            placement.copy_count += int(match["count"])
    return placement


def _partition(text: str) -> Iterator[MessageMatch]:
    """The placement of nodes in a log of ONNX Runtime."""
    if "ExecutionProvider" not in text and "execution provider" not in text:
        return
    placement = _read_placement(text)
    if placement.subgraphs is not None or any(_TENSORRT.search(p) for p in placement.counts):
        # Copies are named by what they copy, where the log says that of each.
        nodes = [n for n in placement.nodes if not placement.copies or not n.op.startswith("Memcpy")]
        yield from describe_placement(nodes, placement.counts, placement.subgraphs)
    elif placement.counts:
        yield _describe_providers(placement.counts, placement.nodes)
    if placement.copies or placement.copy_count:
        yield _describe_copies(placement.copies, max(placement.copy_count, len(placement.copies)))


def _describe_providers(counts: dict[str, int], nodes: Sequence[PlacedNode]) -> MessageMatch:
    where = " and ".join(f"{pluralize(c, 'node')} on {p}" for p, c in counts.items())
    outside = [n for n in nodes if n.provider == _CPU] if len(counts) > 1 else []
    listed = ", ".join(n.describe() for n in outside)
    return MessageMatch(
        "provider-partition",
        f"ONNX Runtime places {where}.",
        _NO_TIMES,
        "If that is not what was wanted: the preferred provider comes first in the list that the session is made with.",
        f"{_CPU}: {shorten_list(listed)}." if listed else "The log counts the nodes of each provider.",
        tuple(n.name for n in outside),
        product=_ORT,
    )


# trtexec.

_SUMMARY = re.compile(
    rf"(?P<what>GPU Compute(?: Time)?|(?:Host |H2D |D2H )?Latency|Enqueue Time|End-to-End Host Latency): "
    rf"min = {_NUMBER} ms, max = (?P<max>{_NUMBER}) ms(?:, mean = (?P<mean>{_NUMBER}) ms)?"
    rf"(?:, median = (?P<median>{_NUMBER}) ms)?"
    rf"(?P<rest>(?:, percentile\([\d.]+%\) = {_NUMBER} ms)*)"
)
_SECTION = re.compile(r"(?P<what>Host Latency|GPU Compute)\s*$")
_MEDIAN = re.compile(rf"\bmedian: (?P<median>{_NUMBER}) ms")
_AVERAGE = re.compile(
    rf"Average on (?P<runs>\d+) runs - GPU latency: (?P<gpu>{_NUMBER}) ms(?: - Host latency: (?P<host>{_NUMBER}) ms)?"
)
_BUILT = re.compile(r"Engine built in (?P<seconds>\d+(?:\.\d+)?) sec\b")
_RATE = re.compile(rf"(?i)\bthroughput: (?P<rate>{_NUMBER}) qps")


def _list_builds(text: str) -> Iterator[MessageMatch]:
    """The times of builds that trtexec prints."""
    for match in _BUILT.finditer(text):
        yield MessageMatch(
            "engine-time", f'The text says "{match[0]}".', f"{match['seconds']} s once, not in each inference.",
            describe_remedy(
                "If builds take too long, a timing cache (--timingCacheFile) may shorten the next one.",
                "NVIDIA/TensorRT, samples/trtexec", "7 to 11",
            ),
            "trtexec measures it; whether an engine came of it is for other lines to say.",
        )  # fmt: skip


def _time(text: str) -> Iterator[MessageMatch]:
    """What trtexec measured of inferences."""
    medians: dict[str, str] = {}
    words: dict[str, str] = {}
    parts: list[str] = []
    what = ""
    if "sec" not in text and " ms" not in text and "qps" not in text:
        return
    for line in text.split("\n"):
        if match := _SUMMARY.search(line):
            if match["what"] in medians:
                # Another run's.
                medians, parts = {}, []
            medians[match["what"]] = match["median"] or match["mean"] or match["max"]
            word = words[match["what"]] = (
                "median" if match["median"] else "mean" if match["mean"] else "largest"
            )
            parts.append(f"{match['what']} {word} {medians[match['what']]} ms{match['rest']}")
        elif match := _SECTION.search(line):
            what = match["what"]
        elif what and (match := _MEDIAN.search(line)):
            medians[what] = match["median"]
            parts.append(f"{what} median {match['median']} ms")
        elif match := _AVERAGE.search(line):
            medians["average"] = match["gpu"]
            parts = [p for p in parts if not p.startswith("Average")]
            parts.append(match[0])
        elif (match := _RATE.search(line)) and float(match["rate"] or 0):
            parts.append(f"{match['rate']} inferences per second")
    if not parts:
        return
    key = next(
        (
            k
            for k in ("GPU Compute Time", "GPU Compute", "Latency", "Host Latency", "average")
            if k in medians and words.get(k) != "largest"
        ),
        "",
    )
    label = {"average": "GPU latency on average"}.get(key, f"{key}, {words.get(key, 'median')}")
    yield MessageMatch(
        "latency",
        f"An inference takes {medians[key]} ms ({label})." if key else f"trtexec measured {parts[0]}.",
        "Measured by trtexec.",
        "If it is too slow: layers and their times come with --exportLayerInfo and --exportProfile.",
        "; ".join(parts) + ".",
    )


# DLA.

_DEVICE = re.compile(r"\[(?P<device>Dla|Gpu)Layer\] (?:[A-Z_]+: )?(?P<name>\S.*?)\s*$")


def _list_devices(text: str) -> Iterator[MessageMatch]:
    """The layers that run on DLA and on the GPU, as the builder lists them."""
    if "DlaLayer]" not in text:
        return
    rows = [m for line in text.split("\n") if (m := _DEVICE.search(line))]
    on_dla, on_gpu = (
        list(dict.fromkeys(m["name"] for m in rows if m["device"] == d)) for d in ("Dla", "Gpu")
    )
    if not on_dla:
        return
    yield MessageMatch(
        "dla-layers",
        f"The text lists {pluralize(len(on_dla), 'layer')} on DLA, and {pluralize(len(on_gpu), 'layer')} on the GPU.",
        _NO_TIMES,
        "Each change of device copies data: the fewer pieces, the better.",
        f"DLA: {shorten_list(', '.join(on_dla))}. GPU: {shorten_list(', '.join(on_gpu)) or 'none listed'}.",
        tuple(on_dla),
    )


# Torch-TensorRT.

_LISTING = re.compile(
    r"Unsupported (?:or Excluded Nodes|operators listed below):?|"
    r"ops are currently unsupported or excluded from conversion"
)
_OPERATOR = re.compile(
    r"^\s*- (?P<op>[\w.:]+)(?:\(.*| \+ Operator Count: (?P<count>\d+).*)?$|"
    r"^ ?(?P<op2>torch\.ops\.[\w.]+): (?P<count2>\d+)"
)
_ENGINES = re.compile(
    r"Number of TensorRT-Accelerated Engines Generated: (?P<count>\d+)|"
    r"current level of graph segmentation is equivalent to .*? which generates (?P<count2>\d+) TRT engine"
)
_IN_TORCH = re.compile(r"^Node: (?P<op>[\w.]+), with layer location: (?P<name>\S+)")


def _list_unconverted(text: str) -> Iterator[MessageMatch]:
    """What Torch-TensorRT leaves to PyTorch, and the engines that come of it."""
    operators: dict[str, str] = {}
    nodes = [m for line in text.split("\n") if (m := _IN_TORCH.match(line))]
    engines = ""
    in_list = False
    for line in text.split("\n") if _LISTING.search(text) or _ENGINES.search(text) else ():
        if match := _ENGINES.search(line):
            engines = match["count"] or match["count2"]
        if _LISTING.search(line):
            in_list = True
        elif in_list and (match := _OPERATOR.match(line)):
            operators[match["op"] or match["op2"]] = match["count"] or match["count2"] or ""
        elif line.strip():
            in_list = False
    if not operators and not engines:
        return
    pieces = f" The text counts {pluralize(int(engines), 'engine')} of TensorRT." if engines else ""
    title = f"Torch-TensorRT does not convert {quote_first([*operators])}." if operators else ""
    yield MessageMatch(
        "torch-unsupported",
        f"{title}{pieces}".strip(),
        _NO_TIMES,
        describe_remedy(
            "If more is to be converted: rewrite operators, or register converters; torch_executed_ops and "
            "min_block_size move the cuts.",
            "pytorch/TensorRT, py/torch_tensorrt/dynamo/partitioning",
            f"{_TORCH} 1.0 and later",
        ),
        (
            f"Nodes that are set to run in PyTorch: {shorten_list(', '.join(m['name'] for m in nodes))}. "
            if nodes
            else ""
        )
        + "With fallback PyTorch runs them"
        + (
            f" ({', '.join(f'{c} of {o}' for o, c in operators.items() if c)})"
            if any(operators.values())
            else ""
        )
        + ", and each place where the runner changes cuts the graph; where full compilation is required, it stops."
        if operators
        else "The more engines, the more often tensors pass between PyTorch and TensorRT.",
        tuple(m["name"] for m in nodes) or tuple(operators),
        product=_TORCH,
    )

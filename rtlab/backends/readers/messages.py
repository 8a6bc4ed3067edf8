"""What the lines of a text report: messages of the table, and every other line that a logger marks, quoted."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from rtlab.backends.readers import severity
from rtlab.backends.readers.message_table import MESSAGES, Message
from rtlab.core.message import UNNAMED_PROGRAM, MessageMatch
from rtlab.core.phrases import pluralize

_COMPILED = tuple((m, re.compile(m.pattern)) for m in MESSAGES)
#: Lines that state how it ended and not why, and those that state a success.
_FAILURE = re.compile(
    r"Engine could not be created from network|(?i:building engine failed|build serialized network failed)|"
    r"(?i:engine (?:set up|creation|deserialization) failed|deserialize ?(?:the )?(?:cuda)?_?engine failed)|"
    r"Failed to (?:create engine from model|build TensorRT engine|deserialize|initialize executor)|"
    r"(?i:(?:failed to|could not) parse (?:the )?onnx)|Parsing model failed|Network And Config setup failed|"
    r"&&&& FAILED TensorRT|Could not deserialize engine|Invalid Engine\b|Builder creation failed|FAILED \| Runtime|"
    r"buildSerializedNetwork.*Assertion engine(?:Ptr)? != nullptr|Assertion `\w*[eE]ngine\w*(?: != nullptr)?' failed|"
    r"'NoneType' object has no attribute '(?:create_execution_context|serialize|num_\w+)'|"
    r"a bytes-like object is required, not 'NoneType'|pybind11::init\(\): factory function returned nullptr|"
    r"Attempting to access an empty engine|Unable to deserialize the TensorRT engine|export failure|"
    r"TRT conversion failed on the subgraph|build engine file failed|deserialize engine from file ?:\S+ failed|"
    r"NVDSINFER_CONFIG_FAILED|Failed to create NvDsInferContext|failed to load all models|"
    r"FAILED_EXECUTION|execution context enqueue failed|"
    r"^Segmentation fault|core dumped|^Aborted$|^Killed$|terminate called after throwing"
)
_SUCCESS = re.compile(
    r"&&&& PASSED|PASSED \| Runtime|\bexport success\b|\bEngine (?:built in|generation completed in|serialized\.)|"
    r"(?:serialize cuda engine to file: ?\S+ successfully|Load new model:\S+ suc+es+fully)|Total time of building all|"
    r"^(?:Success\w*: )?(?:Engine|Build|Conversion)(?: build| is)? (?:succeeded|successful(?:ly)?(?: built)?)[.!]?$"
)
#: What in a line, before what was recognized, or in all of it, makes that no statement: it is denied, supposed or past.
_DOUBT = re.compile(
    r"(?i)(?<![\w/.-])(?:not|never|without|if|whether|unless|until|(?-i:may|might)|could|would|should|avoid\w*|"
    r"prevent\w*|suppress\w*|ignor\w+|instead of|used to|in case|example|previously|earlier|"
    r"(?:was|were|is|been|got) fixed|fix(?:es)?)(?![\w/.-])|n't\b"
)
_DENIAL = re.compile(
    r"(?i)\b(?:no longer|went away|(?:is|was|are|were) (?:now )?(?:fixed|solved|resolved|gone)|"
    r"d(?:id|oes|o)(?: not|n't) (?:happen|occur|appear)|false (?:alarm|positive)|"
    r"(?:safely|can|may) (?:be )?(?:safely )?ignored?|"
    r"(?:no|0|zero|without) (?:\w+ )?(?:mismatch\w*|errors?|failures?|failed|problems?|issues?|exceptions?))\b"
)
#: A person who writes, and a line of a program or for a shell: neither is a line that a program printed.
_PERSON = re.compile(
    r"(?<!\S)[\"'(]*(?:I(?:'m|'ve|'d|'ll)? (?=[a-z]+(?:[ ,.?!]|$))|(?:[Ww]e|[Mm]y|[Oo]urs?|[Ss]ome(?:one|body)|"
    r"[Hh]e|[Ss]he|"
    r"[Hh]i|[Hh]ello|[Tt]hanks|[Pp]eople|[Cc]olleagues?|[Cc]ustomers?|[Aa]nyone|[Aa]nybody)\b(?![/\]:]))|\?\s*$"
)
_CODE_LINE = re.compile(
    r"^\s*(?:\$ |>>> |(?:#|//|\*|--) |(?:sudo |e|f)?grep |if\b|elif |raise |throw |assert\b|print\(|"
    r"self\.|std::|f?printf\(|log(?:ger|ging)?\.|return |def |class |import |from |\w+(?:\.\w+)* = )"
)
#: Lines that belong to others: a node that the parser prints, verdicts of a comparison, advice under a warning.
_FRAME = re.compile(
    r"-{3} ?(?:Begin|End) node|ModelImporter\.cpp:\d+: (?:input|output|name|op_type): |\bIn function \w+:\s*$|"
    r"(?:FAILED|PASSED) \| (?!Runtime|Iteration)|Accuracy Summary|If not already in use|If this is not the desired|"
    r"Check verbose logs|Try (?:de|in)creasing|Memcpy nodes are added"
)
#: Words of a line that no logger marks.
_PROBLEM = re.compile(
    r"(?i)(?<![.\w])(?:fail(?:s|ed|ure)?|errors?|unsupported|not supported|cannot|can't|could not|couldn't|unable to|"
    r"invalid|mismatch\w*|exception|incompatible|refus\w+|illegal|does not|missing|insufficient)\b"
)
#: Those of which a general row of the table says less than others near it.
_OVERLAPS = {
    "no-output": ("uff", "parser-refusal", "unsupported-operator", "plugin", "parser-type", "model-file"),
    "triton-load": ("triton-config",),
    # The cache is read as a plan is; the line after it says that it is the cache.
    "plan-damaged": ("timing-cache",),
    "plan-version": ("timing-cache",),
    "fp16-weights": ("fp16-subnormal", "fp16-overflow"),
    "ort-engine": ("plan-version", "plan-device", "plan-damaged", "no-profile", "no-implementation"),
    "profile-values": ("shape-conflict",),
    "parser-refusal": (
        "zero-point", "sequence", "plugin", "constant-input", "unsupported-operator", "type-mismatch", "shape-conflict",
        "shape-tensor", "parser-type", "input-type", "if-shapes",
    ),
    "dla-fallback": ("dla-reason", "dla-precision", "dla-subgraphs", "dla-dynamic"),
}  # fmt: skip
#: Rows in words that any program may use.
_PLAIN = (
    "deprecated", "check", "internal-check", "cuda-start", "out-of-memory", "cuda-error", "cuda-kernel-image", "file",
    "graph-capture", "library-missing", "library-status", "library-version", "model-file", "unknown-option",
)  # fmt: skip
#: Lines within which two messages are about one thing.
_NEAR = 8
_OPEN_ERROR = re.compile(r"Error Code \d+: [\w ]+$")
#: A line and how the next one goes on with it: no line of its own begins so.
_CONTINUED = (
    (_OPEN_ERROR, re.compile(r"\s*\(")),
    (re.compile(r"for the following indices\s*$"), re.compile(r" index: \d+ Got: ")),
)
#: Numbers that make no other kind of line; a single digit may be the number of an error.
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d{2,}")
#: What stands for a layer, node or tensor in a line that no row fits.
_NAMED = re.compile(
    r"\{ForeignNode\[.*?\]\}|\(Unnamed Layer\* \d+\) \[\w+\]|"
    r"\b(?i:node|layer|tensor|input|output|binding|initializer|plugin|operator|op)s?(?: named?| with name| tensor)?:? "
    r"(?P<quote>[\"'`]?)(?P<name>[\w./:*-]*\w)(?P=quote)|(?<![\w.])(?P<path>/[\w.]+(?:/[\w.+-]+)+)|"
    r"(?<![^\s(])(?P<lead>[\w./-]*\w_\d+): "
)
_FILE = re.compile(r"\.(?:cpp|cc|cu|h|hpp|py|so|onnx|engine|plan|trt|json|log|txt|cache|dll|bin)\b")
_TACTIC = re.compile(
    r"(?:(?P<name>\S.*?) \((?P<runner>[^()]*)\) profiling completed in .*?)?Fastest Tactic: (?P<tactic>\S+) Time: inf"
)
_PREFIX = re.compile(r"^\s*(?:\[[^\[\]]{1,60}\]\s*)*")
_BLOCK = re.compile(r'^(?:.*ModelImporter\.cpp:\d+: )? ?(?P<key>name|op_type): "(?P<value>.*)"')
_IN_NODE = re.compile(r"In node (?P<index>-?\d+)(?: with name: (?P<name>.*?) and operator: (?P<op>\w*))?")
#: The parser's last line on a node.
_ASSERTION = re.compile(r"^\[\d+\] Assertion failed: ")
_PARSING = re.compile(r'While parsing node number \d+ \[(?P<op>\w+)(?: -> "(?P<output>[^"]*)")?')
#: Lines above a refusal in which the node is printed; a node of many inputs or a body takes some.
_ABOVE = 400
#: Names, lines and characters that a sentence quotes, and lines of a text that may have none of a logger's marks.
_QUOTED, _LISTED, _LONGEST, _SHORT, _FRAGMENT = 3, 5, 240, 120, 200
#: Characters of a line that are searched.
_LONGEST_LINE = 4000
#: A shorter name may be another's beginning by chance.
_SHORTEST = 12
_SPELLED = {"cudnn": "cuDNN", "cublas": "cuBLAS", "cutensor": "cuTENSOR"}
_NO_END = "rtlab does not say what it stops."
_UNKNOWN_COST = "rtlab reads no cost in it."


@dataclasses.dataclass
class _Group:
    """The lines of one row of the table."""

    message: Message
    line: int
    text: str
    match: re.Match[str]
    last_error: int = 0
    is_question: bool = False
    #: Each with the first line that has it: its number, text and match.
    names: dict[str, tuple[int, str, re.Match[str]]] = dataclasses.field(default_factory=dict)
    operator: str = ""
    reasons: dict[str, None] = dataclasses.field(default_factory=dict)
    tactics: dict[str, None] = dataclasses.field(default_factory=dict)
    sizes: list[str] = dataclasses.field(default_factory=list)
    has_error: bool = False
    count: int = 0


@dataclasses.dataclass(frozen=True)
class _Line:
    """One of the lines of a text: where it stands, its number, and how it is marked."""

    lines: Sequence[str]
    index: int
    number: int
    mark: severity.MarkedLine | None


@dataclasses.dataclass(frozen=True)
class _QuotedLine:
    """A line that is quoted: its number, its message, and the program that it names."""

    line: int
    text: str
    program: str = ""


def find_messages(text: str, numbers: Sequence[int] = ()) -> tuple[MessageMatch, ...]:
    """What the lines of a text report, each message once, errors first; empty for a text about something else.

    Lines of the table are interpreted; others that state a severity are quoted, errors and warnings apart. ``numbers``
    are those of the lines where they do not count from 1.
    """
    # No message is longer than this; a document in one line would take a search of hours.
    lines = _join_messages([line[:_LONGEST_LINE] for line in text.split("\n")])
    # Of lines that differ in their numbers one is searched: a long log has few kinds of lines.
    kinds = [_NUMBERS.sub("9", line) for line in lines]
    sample = "\n".join(dict(zip(reversed(kinds), reversed(lines), strict=True)).values())
    patterns = [(m, p) for m, p in _COMPILED if re.search(m.pattern, sample, re.MULTILINE)]
    if not severity.is_ours(sample) and all(m.id in _PLAIN for m, _ in patterns):
        return ()
    groups: dict[str, _Group] = {}
    quoted: dict[str, list[_QuotedLine]] = defaultdict(list)
    silent_kinds: set[str] = set()
    for index, (line, kind) in enumerate(zip(lines, kinds, strict=True)):
        if kind in silent_kinds:
            continue
        number = numbers[index] if numbers else index + 1
        mark = severity.parse_mark(line)
        pair = next(((m, match) for m, p in patterns if (match := p.search(line))), None)
        if pair is not None and _is_statement(line, pair[1], mark):
            _add_line(groups, *pair, _Line(lines, index, number, mark))
        elif statement := _classify(line, mark, is_short=len(lines) <= _FRAGMENT):
            entry = _QuotedLine(number, *((mark.text, mark.program) if mark else (line.strip(), "")))
            quoted[statement].append(_continue_line(entry, lines, index))
        else:
            silent_kinds.add(kind)
    hidden_ids = _hide_general(groups)
    errors = [*(q.line for q in quoted["error"]), *(g.last_error for g in groups.values())]
    outcome, success = _describe_outcome(quoted, max(errors, default=0))
    ending = any(g.message.ends for g in groups.values())
    matches = [
        _make_match(g, groups, lines, outcome if g.message.ends or not ending else "", success)
        for i, g in groups.items()
        if i not in hidden_ids
    ]
    is_tensorrt = severity.is_tensorrt(sample)
    quotations = [*_quote_lines(quoted, groups, outcome)]
    found = [*matches, *quotations]
    unsure_ids = {*_PLAIN, *(q.id for q in quotations)}
    named = [_name_program(m, is_tensorrt=is_tensorrt) if m.id in unsure_ids else m for m in found]
    return tuple(sorted(named, key=_rank))


def _name_program(match: MessageMatch, *, is_tensorrt: bool) -> MessageMatch:
    """A message in words that any program may use, with the program that it is of: TensorRT only by its marks."""
    is_compilers = match.product == "TensorRT" or (is_tensorrt and not match.product)
    return dataclasses.replace(match, product="" if is_compilers else match.product or UNNAMED_PROGRAM)


def _is_statement(line: str, match: re.Match[str], mark: severity.MarkedLine | None) -> bool:
    """Whether a line says of itself what it fits, and does not deny it, suppose it, quote it or compute with it."""
    if _DOUBT.search(line[: match.start()]) or _DENIAL.search(line):
        return False
    # What stands behind a logger's mark are its program's words.
    written = line.strip()
    if mark is not None and mark.text != written:
        written = written[: len(written) - len(mark.text)]
    return not (_PERSON.search(written) or _CODE_LINE.search(written))


def _classify(line: str, mark: severity.MarkedLine | None, *, is_short: bool) -> str:
    """What a line of no row states: an error, a warning, a failure, a success, maybe a problem; empty for nothing."""
    severities = {"failure": {"", "error"}, "success": {"", "information"}}
    for statement, pattern in (("failure", _FAILURE), ("success", _SUCCESS)):
        if (mark.severity if mark is not None else "") not in severities[statement]:
            continue
        if (match := pattern.search(line)) and _is_statement(line, match, mark):
            return statement
    if mark is None or mark.severity == "information":
        return (
            "problem"
            if mark is None and is_short and _PROBLEM.search(line) and severity.is_ours(line)
            else ""
        )
    if _FRAME.search(line) or len(re.findall(r"\w{2,}", mark.text)) <= 2 * (mark.severity == "warning"):
        return ""
    return mark.severity


def _join_messages(lines: list[str]) -> list[str]:
    """Lines with a message that goes on in the next line made one; as many lines as before."""
    for index, (line, following) in enumerate(itertools.pairwise(lines)):
        if any(first.search(line) and second.match(following) for first, second in _CONTINUED):
            lines[index], lines[index + 1] = f"{line.rstrip()} {following.strip()}", ""
    return lines


def quote_information(text: str) -> tuple[MessageMatch, ...]:
    """What is said of a text whose lines a logger marks, none as more than information; empty for other texts."""
    marks = [
        (n, m) for n, line in enumerate(text.split("\n"), 1) if (m := severity.parse_mark(line)) is not None
    ]
    entries = [_QuotedLine(number, mark.text) for number, mark in marks if mark.text]
    if not entries or not severity.is_ours(text) or any(m.severity != "information" for _, m in marks):
        return ()
    listed = "; ".join(f'line {e.line}: "{shorten(e.text)}"' for e in entries[-_QUOTED:])
    return (
        MessageMatch(
            "information",
            f"rtlab reads no error and no warning in {pluralize(len(entries), 'line')} that a logger marks.",
            _UNKNOWN_COST,
            "rtlab knows no remedy, nor whether one is needed; for what a build decided, give a verbose log (trtexec "
            "--verbose).",
            f"{capitalize(listed)}.",
            line=entries[-1].line,
        ),
    )


def _rank(match: MessageMatch) -> tuple[bool, bool, int]:
    """Failures first; what is only quoted comes behind what is interpreted."""
    return not match.failed, match.id in {"warning", "problem", "outcome"}, match.line


def _hide_general(groups: Mapping[str, _Group]) -> set[str]:
    """Rows of the table that say less than others do of the same lines."""
    hidden_ids: set[str] = set()
    for i, special_ids in _OVERLAPS.items():
        if i not in groups:
            continue
        group = groups[i]
        specials = [groups[s] for s in special_ids if s in groups]
        near = [s for s in specials if abs(s.line - group.line) <= _NEAR]
        named = {n for s in specials for n in s.names}
        for special in near:
            # Of one and the same lines, what is more general may name the node.
            if not special.names and len(group.names) == 1:
                special.names.update(group.names)
        rest = {n: place for n, place in group.names.items() if n not in named}
        if any(r.startswith("Assertion failed") for r in group.reasons) and (rest or not group.names):
            # It gives a reason of its own.
            continue
        if i == "dla-fallback" and rest:
            group.names = rest
            group.line, group.text, group.match = next(iter(rest.values()))
        if (specials and not rest and group.names) or (near and len(rest) <= 1 and i != "dla-fallback"):
            hidden_ids.add(i)
        elif specials and (not group.names or (i == "parser-refusal" and not group.message.ends)):
            # It only announces what the special ones say.
            hidden_ids.add(i)
    return hidden_ids


def _continue_line(entry: _QuotedLine, lines: Sequence[str], index: int) -> _QuotedLine:
    """A line with the next one, where that closes the bracket that it leaves open: no line of its own does."""
    following = lines[index + 1] if index + 1 < len(lines) else ""
    is_open = entry.text.count("(") > entry.text.count(")")
    if (
        not is_open
        or following.count(")") <= following.count("(")
        or severity.parse_mark(following) is not None
    ):
        return entry
    return dataclasses.replace(entry, text=f"{entry.text} {following.strip()}")


def _describe_outcome(quoted: Mapping[str, Sequence[_QuotedLine]], last_error: int) -> tuple[str, int]:
    """The last line that states how it ended, as a sentence, and its number where it is a success, else 0.

    The sentence is empty where no line does, or errors follow a success.
    """
    successes = [q for q in quoted["success"] if q.line > last_error]
    ends = sorted((*quoted["failure"], *successes), key=lambda q: q.line)
    if not ends:
        return "", 0
    is_success = ends[-1] in successes
    return f' Line {ends[-1].line} states: "{shorten(ends[-1].text, _SHORT)}".', is_success * ends[-1].line


def _quote_lines(
    quoted: Mapping[str, Sequence[_QuotedLine]], groups: Mapping[str, _Group], outcome: str
) -> Iterable[MessageMatch]:
    """What no row of the table interprets: errors, warnings, and how it ended, each in the words of the text."""
    has_error = bool(quoted["error"]) or any(g.last_error or g.message.ends for g in groups.values())
    if quoted["error"]:
        yield _make_quotation("error", "an error", quoted["error"], f"{_NO_END}{outcome}")
    if quoted["failure"] and not has_error:
        is_last = quoted["failure"][-1].line > max((q.line for q in quoted["success"]), default=0)
        yield _make_quotation("build-failed", "a failure", quoted["failure"], _NO_END, failed=is_last)
    if quoted["warning"]:
        yield _make_quotation("warning", "a warning", quoted["warning"], _UNKNOWN_COST)
    if quoted["problem"] and not has_error and not groups and not quoted["failure"]:
        yield _make_quotation("problem", "", quoted["problem"], _NO_END)
    last = quoted["success"][-1] if quoted["success"] else None
    if last is not None and outcome.startswith(f" Line {last.line} ") and "Engine built in" not in last.text:
        yield _make_quotation(
            "outcome", "a success", [last], _UNKNOWN_COST, remedy="None, if that is what was wanted."
        )


def _make_quotation(
    key: str, noun: str, entries: Sequence[_QuotedLine], cost: str, *, remedy: str = "", failed: bool = False
) -> MessageMatch:
    """One finding of all lines of a severity."""
    first_entries = {e.text: e for e in reversed(entries)}
    distinct = sorted(first_entries.values(), key=lambda e: e.line)
    programs = list(dict.fromkeys(e.program for e in distinct))
    program = programs[0] if len(programs) == 1 else ""
    verb = f"{program} reports" if program and key not in {"build-failed", "outcome"} else "The text states"
    if not noun:
        verb, noun = "The text", "says"
    more = f", and {pluralize(len(distinct) - 1, 'line')} more" if len(distinct) > 1 else ""
    listed = "; ".join(f'line {e.line}: "{shorten(e.text)}"' for e in distinct[:_LISTED])
    rest = f"; {len(distinct) - _LISTED} more" if len(distinct) > _LISTED else ""
    names = dict.fromkeys(n for e in distinct for n in _find_names(e.text))
    return MessageMatch(
        key,
        f'{verb} {noun}: "{shorten(distinct[0].text)}"{more}.',
        cost,
        remedy
        or "rtlab quotes this and knows no remedy: search for these words; lines before it may say more.",
        f"{capitalize(listed)}{rest}.",
        tuple(names),
        failed,
        distinct[0].line,
        program,
    )


def _find_names(text: str) -> list[str]:
    """Names of layers, nodes and tensors in a message; words that are too plain to be names are left out."""
    names = [next(filter(None, m.group("name", "path", "lead")), m[0]) for m in _NAMED.finditer(text)]
    return [n for n in names if re.search(r"[/_.\d\[]", n) and not _FILE.search(n)]


def _add_line(groups: dict[str, _Group], message: Message, match: re.Match[str], line: _Line) -> None:
    """Take in one more line of a message."""
    text = (
        line.mark.text
        if line.mark is not None and match[0].strip() in line.mark.text
        else line.lines[line.index]
    )
    group = groups.setdefault(message.id, _Group(message, line.number, text, match))
    if message.is_parser and MESSAGES.index(message) < MESSAGES.index(group.message):
        # The line behind says what the first one only announces.
        group.message, group.line, group.text, group.match = message, line.number, text, match
    if line.mark is not None and line.mark.severity == "error":
        group.last_error = line.number
    group.has_error |= line.mark is None or line.mark.severity == "error"
    group.is_question |= message.is_parser and any(
        "onnxruntime:" in above for above in line.lines[max(0, line.index - 2) : line.index + 1]
    )
    group.count += 1
    fields = {k: v for k, v in match.groupdict().items() if v}
    # The number of an error before the message is no name.
    start = len(line.lines[line.index].rstrip()) - len(line.mark.text) if line.mark is not None else 0
    names = [
        v
        for k, v in fields.items()
        if re.fullmatch(r"(?:name|plugin|operator)\d?", k) and match.start(k) >= start
    ]
    names += re.split(r",\s+", fields.get("name_list", ""))
    if message.is_parser:
        name, operator = _find_node(line.lines, line.index)
        stated = fields.get("plugin") or fields.get("operator")
        # A node above may be another message's.
        if operator in {"", stated} or not stated:
            group.operator = operator
            names = [*filter(None, [name]), *names][:1]
    for name in filter(None, map(_trim_name, names)):
        group.names.setdefault(name, (line.number, text, match))
    group.reasons.update({v.strip(): None for k, v in fields.items() if k.startswith(("reason", "static"))})
    if "tactic" in fields:
        group.tactics[fields["tactic"]] = None
    if "size" in fields:
        group.sizes.append(fields["size"])


def _trim_name(text: str) -> str:
    """A name without the quotes and brackets of the message around it."""
    name = text.strip()
    if name.endswith(('"', "'")):
        name = name.rstrip("\"'").rstrip(".")
    name = name.lstrip("\"':")
    return name[:-1] if name.endswith(")") and name.count(")") > name.count("(") else name


def _find_node(lines: Sequence[str], index: int) -> tuple[str, str]:
    """The name of the node in a line of the parser or just above it, else its first output, operator or number.

    And its operator; both are empty where the lines have none.
    """
    if (stated := _IN_NODE.search(lines[index])) is not None:
        # Node -1 is none: the message is of the whole model, or of a weight.
        number = "" if stated["index"] == "-1" else f"node {stated['index']}"
        return stated["name"] or stated["op"] or number, stated["op"] or ""
    announced = _PARSING.search(lines[index])
    if announced is not None and "--- Begin node" in "".join(lines[index + 1 : index + 2]):
        # The node is printed behind.
        printed = itertools.takewhile(lambda x: "--- End node" not in x, lines[index + 2 : index + _ABOVE])
        names = [m["value"] for line in printed if (m := _BLOCK.match(line)) and m["key"] == "name"]
        return next(filter(None, [*names, announced["output"], announced["op"]]), ""), announced["op"]
    fields: dict[str, str] = {}
    is_inside = False
    for distance, line in enumerate(reversed(lines[max(0, index + 1 - _ABOVE) : index + 1])):
        if distance and not is_inside and _ASSERTION.match(line):
            break
        is_inside |= "--- End node ---" in line
        if (block := _BLOCK.match(line)) is not None:
            is_inside = True
            fields.setdefault(block["key"], block["value"])
        elif (parsing := _PARSING.search(line)) is not None:
            fields.setdefault("output", parsing["output"] or "")
            fields.setdefault("op_type", parsing["op"])
            break
        elif ("--- Begin node ---" in line and "name" in fields) or (not is_inside and distance > _NEAR):
            break
    name = next((fields[k] for k in ("name", "output", "op_type") if fields.get(k)), "")
    return name, fields.get("op_type", "")


def _make_match(
    group: _Group, groups: Mapping[str, _Group], lines: Sequence[str], outcome: str, success: int
) -> MessageMatch:
    message = group.message
    remedy = message.remedy
    if group.line < success and group.last_error < success and not remedy.startswith("If "):
        remedy = f"If what line {success} states is not enough: {remedy[:1].lower()}{remedy[1:]}"
    names = drop_partial_names(group.names)
    fields = defaultdict(str, {re.sub(r"\d$", "", k): v for k, v in group.match.groupdict().items() if v})
    operator = f"{group.operator} " if len(names) == 1 and group.operator not in names[0] else ""
    quotation = f"{operator}{quote_first(names)}" if names else ""
    fields |= {
        "names": quotation or "a node",
        "of_names": f" {quotation}" if names else "",
        "at_names": f": {quotation}" if names else "",
        "place": f" in {fields['call']}" if fields["call"] else "",
        "library": _SPELLED.get(fields["library"].lower(), fields["library"]),
    }
    quote = _quote_around(group.text, group.match)
    values = [r for r in group.reasons if shorten(r) not in quote and shorten(r).strip("\"'.)") not in quote][
        :_QUOTED
    ]
    if group.sizes:
        values.append(f"the largest request, as printed: {_list_largest(group.sizes)}")
    if message.id == "insufficient-memory":
        values.append(f"{pluralize(group.count, 'line')}, {pluralize(len(group.tactics), 'tactic')} by name")
    if message.id == "no-implementation":
        values += _list_tactics(names, groups, lines)
    evidence = f"{message.cause} {capitalize('; '.join(map(shorten, values)))}" if values else message.cause
    return MessageMatch(
        message.id,
        re.sub("^a node", "A node", message.title.format_map(fields)),
        _describe_cost(group, outcome),
        describe_remedy(remedy.format_map(fields), message.source, message.releases),
        f'{evidence.rstrip(".")}. Line {group.line}: "{quote}".',
        names,
        bool(message.ends) and not group.is_question and group.has_error,
        group.line,
        get_product(message.releases),
    )


def _describe_cost(group: _Group, outcome: str) -> str:
    """What comes of a message: what it ends as an error, and what a line of the text states of the end."""
    message = group.message
    if group.is_question:
        return f"ONNX Runtime asks the parser which nodes it takes, and can give others to its next provider.{outcome}"
    if message.effect:
        return message.effect
    if message.ends:
        return f"As an error it ends {message.ends}.{outcome}"
    return f"{_NO_END}{outcome}" if group.last_error else _UNKNOWN_COST


def _list_largest(sizes: Iterable[str]) -> str:
    """The largest size of each unit, as it is printed; whether one is larger than that of another unit is not known."""
    largest: dict[str, int] = {}
    for size in sizes:
        digits = re.match(r"\d+", size)[0]  # type: ignore[index]
        unit = size[len(digits) :]
        largest[unit] = max(int(digits), largest.get(unit, 0))
    return " and ".join(f"{number}{unit}" for unit, number in largest.items())


def _quote_around(text: str, match: re.Match[str]) -> str:
    """A line without the marks of a logger; of a long one the part round what was recognized."""
    bare = _PREFIX.sub("", text)
    at = bare.find(match[0][:40].strip())
    start = max(0, at - 40) if len(bare) > _LONGEST and at > _LONGEST // 2 else 0
    return shorten(f"...{bare[start:]}" if start else bare)


def _list_tactics(names: Sequence[str], groups: Mapping[str, _Group], lines: Iterable[str]) -> list[str]:
    """What the builder tried for layers without an implementation."""
    tries = [m for line in lines if "Time: inf" in line and (m := _TACTIC.search(line))]
    tries = [
        m for m in tries if m["name"] is None or any(n.startswith(m["name"]) or n in m["name"] for n in names)
    ]
    values = []
    if tries:
        last = tries[-1]
        runner = f" of {last['runner']}" if last["runner"] else ""
        values.append(
            f'the fastest tactic{runner} is printed as {last["tactic"]} with "Time: inf"; such lines in this text: '
            f"{len(tries)}"
        )
    sizes = [s for i in ("insufficient-memory", "out-of-memory") if i in groups for s in groups[i].sizes]
    if sizes:
        values.append(f"the largest request of memory in the same text, as printed: {_list_largest(sizes)}")
    return values


def drop_partial_names(names: Iterable[str]) -> tuple[str, ...]:
    """Names once each; one that another begins with was cut off."""
    listed = [n for n in dict.fromkeys(names) if n]
    partial = {a for a, b in itertools.pairwise(sorted(listed)) if len(a) > _SHORTEST and b.startswith(a)}
    return tuple(n for n in listed if n not in partial)


def quote_first(names: Sequence[str]) -> str:
    """The first names in quotes, and how many more there are."""
    text = ", ".join(f'"{shorten(n)}"' for n in names[:_QUOTED])
    return f"{text} and {len(names) - _QUOTED} more" if len(names) > _QUOTED else text


def shorten(text: str, longest: int = _LONGEST) -> str:
    """A text of one line up to the length of a quotation."""
    text = text.strip().replace('"', "'")
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def capitalize(text: str) -> str:
    """A text with a capital letter first; a word of a program stays as it is."""
    return text if re.match(r"\w*[_<(]", text) else text[:1].upper() + text[1:]


def describe_remedy(remedy: str, source: str, releases: str) -> str:
    """A remedy with where it comes from and what it holds for."""
    product = "" if releases[:1].isalpha() else "TensorRT "
    return f"{remedy} Not tried here; from {source}; for {product}{releases}."


def get_product(releases: str) -> str:
    """The program that releases are of; empty for TensorRT, where they begin with a number."""
    return re.split(r" ?\d", releases, maxsplit=1)[0]

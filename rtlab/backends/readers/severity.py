"""How loggers mark a line: its severity, the program that wrote it, and the message without the marks."""

from __future__ import annotations

import dataclasses
import re
from typing import Literal

Severity = Literal["error", "warning", "information"]

#: What ONNX Runtime, its provider, Triton and TensorFlow write, with the letter or the word of a severity.
_LOGGED = (
    r"\[\d{4}-\d\d-\d\d [\d:.]+ +%s\]|\[%s:onnxruntime[^\]\n]*\]|(?:^|\| )%s\d{4} [\d:.]+ +\d+ [\w./-]+:\d+\]|"
    r": %s (?=[\w/]+\.cc:\d+\])"
)
#: A word of severity is a mark where punctuation follows, or nothing but numbers, times and names with them precede.
_WORD = r"(?<![.\w-])(?:%s)(?=\s*[:\]|>]|\s+[-\[(<])|^(?:[A-Za-z]*[^A-Za-z\s]\S*\s+)*(?:%s)(?=\s)"
_MARKS: tuple[tuple[Severity, str], ...] = (
    ("error", _LOGGED % ("(?:INTERNAL_)?ERROR", "[EF]", "[EF]", "[EF]")),
    ("error", r"\[[EF]\]|\[!\]|\[(?i:error|fatal|critical)\]"),
    ("error", _WORD % ((r"(?:INTERNAL[ _])?ERROR|FATAL|CRITICAL",) * 2)),
    ("error", r"^(?:fatal )?[eE]rror:|\*EP Error|^EP Error|^(?:[\w-]+ )?error: |\bERRO?R?\b \["),
    ("warning", _LOGGED % ("WARNING", "W", "W", "W")),
    ("warning", r"\[W\]|\[(?i:warning|warn)\]|^(?:[\w./]+:\d+: )?\w*[wW]arning:"),
    ("warning", _WORD % (("WARN(?:ING)?",) * 2)),
    ("information", _LOGGED % ("(?:INFO|VERBOSE)", "[IV]", "[IV]", "[IV]")),
    ("information", r"\[[IVDS]\]|\[(?i:info|verbose|debug|trace)\]"),
    ("information", _WORD % (("INFO|VERBOSE|DEBUG|TRACE",) * 2)),
)  # fmt: skip
#: What says by itself that something failed, without a logger: from here on it is the message.
_STATEMENTS = re.compile(
    r"Error Code:? (?!0\b)\d+|(?<!\w)Error\[\d+\]|\[ONNXRuntimeError\]|\[Error thrown at|"
    r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Fail|InvalidGraph|InvalidArgument|InvalidProtobuf|NotImplemented|"
    r"NoSuchFile): |terminate called after|^ *what\(\): |Assertion (?:failed|failure|`|.{0,200} failed)|"
    r"(?i:\bcuda (?:failure|error)\b)|\bC(?:UDNN|UBLAS)_STATUS_(?!SUCCESS)\w+|Segmentation fault|"
    r"core dumped|^Aborted\b|^Killed$|&&&& FAILED|"
    r"\b(?:UNAVAILABLE|INVALID_ARGUMENT|INTERNAL|NOT_FOUND): |StatusCode\.(?!OK)\w+"
)
#: Marks that follow others: names of loggers and of files, numbers of errors.
_REST = re.compile(
    r"(?:[\s:|\]-]+|\[(?:TRT|TensorRT|TRT-LLM|[\w-]*TensorRT[^\]\n]*)\]:?|"
    r"\[[\d/: .-]{8,30}(?: +[A-Z_]+)?\]|Error\[\d+\]:|(?:INTERNAL_)?(?:ERROR|WARNING):|\d{1,2}:(?=\s)|"
    r"\[[\w./]+\.(?:cpp|cc|h|cu)::[^\]\n]*\]|[\w./\\-]+\.(?:cpp|cc|h|cu):\d+[:\]]|"
    r"(?:TRT|TensorRT|nvinfer1):(?=\s)|"
    r"nvinfer gstnvinfer\w*\.cpp:\d+:\w+:|<[\w.-]+>|(?:torch_tensorrt|onnxruntime|tensorrt)[\w.]*:(?=[^\s:]))+"
)
#: Marks of TensorRT's logger and of trtexec, and the forms of its errors: who wrote a text, and not what it names.
_TENSORRT = re.compile(
    r"\[(?:TRT|TensorRT)\]|\bTRT: |^TensorRT: |&&&& \w+ TensorRT|Error\[\d+\]: |ModelImporter\.cpp:\d|"
    r"Error Code \d+: [A-Z][\w ]+\(|^\[[\d/]+-[\d:]+\] \[[EWIV]\] ",
    re.MULTILINE,
)
_PROGRAMS = (
    ("ONNX Runtime", r"onnxruntime:|\bEP Error\b"),
    ("Torch-TensorRT", r"(?i:torch[_-]tensorrt)|core/(?:conversion|runtime|partitioning|lowering)/"),
    ("TF-TRT", r"tf2tensorrt"),
    ("TensorRT-LLM", r"TensorRT-LLM|TRT-LLM|tensorrt_llm"),
    ("DeepStream", r"gstnvinfer"),
    ("Polygraphy", r"(?i:polygraphy)"),
    ("Triton", r"model_(?:lifecycle|repository_manager)"),
    ("TensorRT", r"\bTRT\b|TensorRT"),
)
#: Words of TensorRT and its neighbours: without one of them a text is about something else.
_OURS = re.compile(
    r"(?i:tensorrt|\btrt(?:exec)?\b|nvinfer|onnx|polygraphy|myelin|\bcask|\bDLA\b|nvdla|nvmedia_dla|ExecutionProvider|"
    r"tritonserver|model_lifecycle|model_repository_manager|modelopt|\bnsys\b|"
    r"nsight systems|\.engine\b|\.plan\b|\.trt\b)|\bTYPE_FP(?:16|32)\b|"
    r"Error Code:? \d+: |Error\[\d+\]: |\bI(?:ExecutionContext|CudaEngine|Builder|Runtime|Refitter)\b|"
    r"parse(?:Node|Graph)|ForeignNode|&&&& |create_execution_context|core/(?:conversion|runtime|partitioning|lowering)/"
)
#: Marks of trtexec and Polygraphy, whose lines need not name a program.
_SAMPLE = re.compile(
    r"^(?:\[[\d/]+-[\d:]+\] )?\[[EWIV]\] (?=.*\b(?i:engine|layers?|tensors?|network|parser|plugins?|tactics?|builder|"
    r"optimization profile|calibrat\w+|timing cache|weights)\b)",
    re.MULTILINE,
)
_COMPILED = tuple((severity, re.compile(pattern)) for severity, pattern in _MARKS)
_PROGRAM_PATTERNS = tuple((program, re.compile(pattern)) for program, pattern in _PROGRAMS)
#: Without one of these a line states no severity: nearly all lines of a long log.
_HINT = re.compile(
    r"[EWFIVDS!]\]|\[[EWFIV]:|^[EWFI]\d|: [EWFI] "
    r"|C\w+_STATUS_|(?i:err(?:o|\b)|warn|fatal|critical|info|debug|verbose|trace|"
    r"fail|exception|assert|abort|killed|dumped|terminate|what\(\)|unavailable|invalid|internal|not_?found|notimpl|nosuch|"
    r"statuscode)"
)
#: Words of a sentence: what stands behind them is no mark of a line.
_PROSE = re.compile(r"(?:(?<!\S)[a-z']+[,:]? ){3}")
#: Characters in which a logger's mark stands.
_PREFIX = 240


@dataclasses.dataclass(frozen=True)
class MarkedLine:
    """The severity that a line states, the program that it names, empty for none, and its message."""

    severity: Severity
    program: str
    text: str


def is_ours(text: str) -> bool:
    """Whether a text is of TensorRT or of a program around it."""
    return _OURS.search(text) is not None or _SAMPLE.search(text) is not None


def is_tensorrt(text: str) -> bool:
    """Whether a text has marks of TensorRT's logger, or the form of its errors."""
    return _TENSORRT.search(text) is not None


def parse_mark(line: str) -> MarkedLine | None:
    """What a logger says of a line, or the line of itself; ``None`` where neither states a severity."""
    if not _HINT.search(line):
        return None
    head = line[:_PREFIX]
    marks = [(m, severity) for severity, p in _COMPILED if (m := p.search(head))]
    marks = [(m, severity) for m, severity in marks if not _PROSE.search(head[: m.start()])]
    statement = _STATEMENTS.search(line)
    default: tuple[re.Match[str] | None, Severity] = (statement, "error")
    mark, severity = min(marks, key=lambda x: x[0].end()) if marks else default
    if mark is None:
        return None
    # A word of severity within the message is no mark.
    is_statement = statement is not None and statement.end() < mark.end()
    text = line if mark is statement or is_statement else line[mark.end() :]
    if is_statement:
        severity = "error"
    text = text[rest.end() :] if (rest := _REST.match(text)) else text
    # Who writes a line is what its marks say; the message may name others.
    marked = line[: len(line) - len(text)]
    program = next((name for name, p in _PROGRAM_PATTERNS if p.search(marked)), "")
    return MarkedLine(severity, program, text.strip())

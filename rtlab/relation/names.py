"""The grammar of the names that TensorRT gives its layers, 5.x to 11.x, and the nodes that such a name tells.

A fused layer joins names: ``a + b`` one after the other, ``a || b`` side by side, ``PWN(a, b)`` as one pointwise
kernel, ``{ForeignNode[a...b]}`` as a region whose ends alone are told. ``Reformatting CopyNode for Input Tensor 0 to
a`` names a neighbour. Myelin writes ``_`` for ``.`` and appends ``_myl2_7``; the ONNX parser appends ``_2`` where it
makes several layers of one node; Torch-TensorRT writes ``[KIND]-[aten op]-[/module/op]``. Words of TensorRT's own, such
as ``(Unnamed Layer* 3) [Shuffle]`` or ``ONNXTRT_Broadcast_4``, stand for no node.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import defaultdict
from collections.abc import Container, Iterator

from rtlab.core.engine import Layer
from rtlab.core.model import Model
from rtlab.core.node import Node
from rtlab.relation.dataflow import COPY
from rtlab.relation.flow import Flow

_JOINTS = (" + ", " || ", ", ")
_JOINT = re.compile("|".join(map(re.escape, _JOINTS)))
_POINTWISE = "PWN("
#: Brackets around one word that are looked into.
_NESTED = 64
_REGION, _REGION_END = "{ForeignNode[", "]}"
_SUFFIX = re.compile(r"(_myl\d+_\d+|\[profile \d+\]|\s)+$")
_COUNTED = re.compile(r"_\d+$")
_TORCH = re.compile(r"\[(\w+)\]-\[([^\[\]]*)\]-\[([^\[\]]*)\]")
#: Words of TensorRT itself, which name no node; some end in the name of the node that they help.
_TRT_NAME = re.compile(
    r"\(Unnamed Layer\*|ONNXTRT_|__my|dummy_shape_call|"
    r"(?:copied_)?(?:un)?squeeze_(?:node_)?(?:after|before)_|transpose_(?:before|after)_|shuffle_(?:between|before|after)_"
)


@dataclasses.dataclass(frozen=True)
class NamedNodes:
    """Nodes that one word of a name tells, and how it tells them. Several are candidates where ``sure`` is False."""

    nodes: tuple[Node, ...]
    note: str
    sure: bool = True


def words(name: str, node_names: Container[str] = (), *, longest: int = 1) -> list[str]:
    """The names that a layer's name joins, in order; ``node_names`` of ``longest`` parts at most are taken whole."""
    if longest == 1 and _REGION not in name:
        return [_strip_wrappers(word, node_names) for word in _JOINT.split(name)]
    cuts = list(_JOINT.finditer(name))
    starts = [0, *(c.end() for c in cuts)]
    ends = [*(c.start() for c in cuts), len(name)]
    names: list[str] = []
    at = 0
    while at < len(starts):
        if name.startswith(_REGION, starts[at]):
            last = next((i for i in range(at, len(ends)) if name.endswith(_REGION_END, 0, ends[i])), at)
            names.append(name[starts[at] : ends[last]])
            at = last + 1
            continue
        for last in range(min(len(ends), at + longest) - 1, at - 1, -1):
            word = _strip_wrappers(name[starts[at] : ends[last]], node_names)
            if word in node_names or last == at:
                names.append(word)
                at = last + 1
                break
    return names


def _strip_wrappers(word: str, node_names: Container[str]) -> str:
    """A word without the brackets of the pointwise layers around it, whose other ends may be in another word."""
    if not word.endswith(")") and not word.startswith(_POINTWISE):
        return word if word in node_names else word.strip()
    # TensorRT nests a few; a damaged name of thousands must not cost their square.
    for _ in range(_NESTED):
        if word in node_names or not word.startswith(_POINTWISE):
            break
        word = word[len(_POINTWISE) :]
    for _ in range(_NESTED):
        if word in node_names or not word.endswith(")") or word.count(")") <= word.count("("):
            break
        word = word[:-1]
    return word if word in node_names else word.strip()


def operator(word: str) -> str:
    """The operation in a word: its kind in Torch-TensorRT's form, else the end of a path; empty where there is none."""
    if word.startswith("[") and (torch := _TORCH.fullmatch(word)):
        return torch[1]
    end = _COUNTED.sub("", _SUFFIX.sub("", word).rpartition("/")[2]).strip("_").removeprefix("node_")
    return end if end.isidentifier() and not _TRT_NAME.match(word) else ""


def is_trt_name(word: str) -> bool:
    """Whether a word is TensorRT's own, which names no node."""
    return bool(_TRT_NAME.match(word))


class Names:
    """Finds the nodes of a model in the names of an engine's layers."""

    def __init__(self, model: Model, flow: Flow) -> None:
        self.model, self.flow = model, flow
        self._named: dict[str, tuple[Node, ...]] = {}
        for node in model.nodes:
            # The parser's name of a node that has none.
            name = node.name or f"node_of_{next(iter(node.outputs), '')}"
            self._named[name] = (*self._named.get(name, ()), node)
        self._exact = self._named | {i: (node,) for i, node in model.by_id.items()}
        # One search of all names rules out what is rare.
        together = "\n".join(self._exact)
        compound_names = self._exact if any(joint in together for joint in _JOINTS) else ()
        self._longest = 1 + max((len(_JOINT.findall(n)) for n in compound_names), default=0)

    @functools.cached_property
    def _dotless(self) -> dict[str, tuple[Node, ...]]:
        """Nodes by their names as Myelin spells them."""
        table: defaultdict[str, tuple[Node, ...]] = defaultdict(tuple)
        for name, nodes in self._named.items():
            if "." in name:
                table[name.replace(".", "_")] += nodes
        return {k: v for k, v in table.items() if k not in self._exact}

    def find_exact(self, name: str) -> tuple[Node, ...]:
        """The nodes with this id, or else with this name: several where an author gave a name twice."""
        return self._exact.get(name, ())

    def find_explicit(self, name: str) -> Iterator[NamedNodes]:
        """What a layer's name says of single nodes, word by word; of a region its two ends."""
        if name in self._exact:
            yield self._make_named_nodes(self.find_exact(name), "The layer bears the node's name.")
            return
        if COPY.match(name):
            # It names its neighbour.
            return
        for word in words(name, self, longest=self._longest):
            if word.startswith(_REGION):
                ends = [n for end in self._find_ends(word) if end for n in end]
                if ends:
                    yield NamedNodes(tuple(ends), "The layer's name lists the node as an end of a region.")
            elif named_nodes := self._lookup(word):
                yield named_nodes

    def find_regions(self, name: str, mapped_ids: Container[str]) -> Iterator[NamedNodes]:
        """The nodes between the ends of each region in a layer's name; no way leads through ``mapped_ids``."""
        if _REGION not in name or name in self._exact or COPY.match(name):
            return
        for word in words(name, self, longest=self._longest):
            if word.startswith(_REGION):
                first, last = self._find_ends(word)
                inner = {n.id: n for a in first for b in last for n in self.flow.between(a, b, mapped_ids)}
                if inner:
                    note = "It lies between the ends of a region that the layer's name contains."
                    yield NamedNodes(tuple(sorted(inner.values(), key=lambda n: n.index)), note)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self._lookup(word) is not None

    def _make_named_nodes(self, nodes: tuple[Node, ...], note: str) -> NamedNodes:
        return NamedNodes(nodes, note, sure=len(nodes) == 1)

    def _lookup(self, word: str) -> NamedNodes | None:
        """The nodes that one word names, in any form that TensorRT gives to a node's name."""
        listed_note = "The layer's name lists the node."
        bare = _SUFFIX.sub("", word)
        if nodes := self.find_exact(word) or self.find_exact(bare):
            return self._make_named_nodes(nodes, listed_note)
        if torch := _TORCH.fullmatch(bare):
            nodes = self.find_exact(torch[3])
            note = "The layer's name lists the node's module and operation."
            return self._make_named_nodes(nodes, note) if nodes else None
        if _TRT_NAME.match(bare) or bare in self.model.values:
            return None
        if nodes := self._dotless.get(bare, ()):
            return self._make_named_nodes(nodes, listed_note)
        stem = _COUNTED.sub("", bare)
        nodes = (self.find_exact(stem) or self._dotless.get(stem, ())) if stem != bare else ()
        # Of nodes with one name, the parser numbers those after the first.
        note = "The layer's name lists one of several layers that were made of the node."
        return self._make_named_nodes(nodes, note) if nodes else None

    def _find_ends(self, region: str) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
        """The nodes at both ends of a region, empty where an end is a helper of TensorRT."""
        inside = region[len(_REGION) : -len(_REGION_END)]
        if "..." not in inside:
            return self._find_end(inside, first=True), ()
        # A name may end or begin with dots itself.
        cuts = [m.start() for m in re.finditer(r"(?=\.\.\.)", inside)]
        tries = [
            (self._find_end(inside[:c], first=True), self._find_end(inside[c + 3 :], first=False))
            for c in cuts
        ]
        return max(tries, key=lambda t: bool(t[0]) + bool(t[1]))

    def _find_end(self, name: str, *, first: bool) -> tuple[Node, ...]:
        if name in self._exact:
            return self.find_exact(name)
        value = self.model.values.get(name)
        if first and value is not None and value.kind == "constant":
            # A region that begins with a weight begins with what reads it.
            return tuple(self.flow.value_readers(name)[:1])
        if named_nodes := self._lookup(name):
            return named_nodes.nodes
        producer = self.model.producers.get(name)
        return (producer,) if producer is not None else ()


#: A step that changes a shape for the layer whose name follows.
_AROUND = re.compile(r"^(?:copied_)?(?:(?:un)?squeeze|reshape|transpose)(?:_node)?_(?:before|after)_")
_MYELIN = re.compile(r"^__myl_|_myl\d+_\d+$|\{ForeignNode\[")
#: Constants that the builder repeats before their readers.
_CLONE = re.compile(r"_clone_\d+$")
#: What operators are called; of several in a name the first in this order says what the layer is for.
_WORKS: tuple[tuple[str, frozenset[str]], ...] = (
    ("convolution", frozenset({"Conv", "ConvTranspose", "ConvInteger"})),
    ("matrix product", frozenset({"MatMul", "Gemm", "Einsum", "MatMulInteger"})),
    ("softmax", frozenset({"Softmax", "LogSoftmax"})),
    ("normalization", frozenset({"BatchNormalization", "LayerNormalization", "InstanceNormalization", "LRN"})),
    ("pooling", frozenset({"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"})),
    ("reduction", frozenset({"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "TopK"})),
    ("quantization", frozenset({"QuantizeLinear", "DequantizeLinear"})),
    ("slice or concatenation", frozenset({"Slice", "Concat", "Split", "Pad", "Gather"})),
    ("shuffle", frozenset({"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Expand"})),
    ("pointwise", frozenset({"Add", "Sub", "Mul", "Div", "Relu", "Clip", "Sigmoid", "Tanh", "Sqrt", "Pow", "Erf"})),
)  # fmt: skip


def has_only_name(layer: Layer) -> bool:
    """Whether all that is told of a layer is its name."""
    return not (layer.kind or layer.inputs or layer.outputs)


def infer_work(layer: Layer) -> str:
    """The work of a layer of which only the name is known, such as "convolution"; empty where nothing tells."""
    if not has_only_name(layer):
        return ""
    if COPY.match(layer.name) or layer.name.endswith(" copy"):
        return "reformat"
    if _MYELIN.search(layer.name):
        return "myelin"
    if layer.name.startswith("PWN("):
        return "pointwise"
    if _CLONE.search(layer.name):
        return "constant"
    operators = {operator(word) for word in split_name(layer)}
    if work_name := next((work for work, ops in _WORKS if operators & ops), ""):
        return work_name
    return "shuffle" if _AROUND.match(layer.name) else ""


def split_name(layer: Layer) -> list[str]:
    """The words of a name, without those of layers that it only stands before or behind."""
    layer_part = " + ".join(part for part in layer.name.split(" + ") if not _AROUND.match(part))
    return words(layer_part) if has_only_name(layer) else words(layer.name)

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
from collections.abc import Container, Iterable, Iterator

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
_COPIED = re.compile(r"^(.+?)(?: |_)copy(?:_\d+)?$", re.DOTALL)
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
    """The names that a layer's name joins, in their order; that of a region as ``{ForeignNode[a...b]}``.

    Args:
        name: Of a layer.
        node_names: Names that are taken whole although they may contain what joins names.
        longest: How many parts such a name may consist of.
    """
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
    if torch := _TORCH.fullmatch(word):
        return torch[1]
    end = _COUNTED.sub("", _SUFFIX.sub("", word).rpartition("/")[2]).strip("_").removeprefix("node_")
    return end if end.isidentifier() and not _TRT_NAME.match(word) else ""


def is_trt_name(word: str) -> bool:
    """Whether a word is TensorRT's own, which names no node."""
    return bool(_TRT_NAME.match(word))


class Names:
    """Finds the nodes of a model in the names of an engine's layers."""

    def __init__(self, model: Model, flow: Flow, layers: Iterable[Layer]) -> None:
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
        self._torch = self._map_torch_paths(layers) if any("]-[" in y.name for y in layers) else {}

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
        if (copy := _COPIED.match(name)) and (joins := self._find_concats(copy[1])):
            yield NamedNodes(joins, "The layer copies a value to where this node joins it with others.")
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
            nodes = self.find_exact(torch[3]) or self._torch.get(torch[3], ())
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

    def _find_concats(self, name: str) -> tuple[Node, ...]:
        """The Concat nodes that read a value, or what the nodes of this name write."""
        values = {name} if name in self.model.values else set()
        for word in () if values else words(name, self, longest=self._longest):
            values |= {o for n in self.find_exact(word) for o in n.outputs}
        readers = {n.id: n for key in values for n in self.flow.value_readers(key) if n.op == "Concat"}
        return tuple(readers.values())

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
        named_nodes = self._lookup(name)
        return named_nodes.nodes if named_nodes else ()

    def _map_torch_paths(self, layers: Iterable[Layer]) -> dict[str, tuple[Node, ...]]:
        """Nodes by Torch-TensorRT's path of the operation that they are.

        Torch-TensorRT numbers the operations of one kind through the whole network; an exporter of ONNX within each
        module, and repeats the names of the modules around it.
        """
        modules: defaultdict[str, list[Node]] = defaultdict(list)
        for node in self.model.nodes:
            parts = node.name.strip("/").split("/")
            modules[_module_path(parts[:-1])].append(node)
        calls: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for layer in layers:
            for torch in _TORCH.finditer(layer.name):
                module, _, operation = torch[3].strip("/").rpartition("/")
                calls[_module_path(module.split("/")), _COUNTED.sub("", operation)].add(torch[3])
        table: dict[str, tuple[Node, ...]] = {}
        for (module, operation), paths in calls.items():
            nodes = modules.get(module, [])
            plain = re.sub(r"[\W_\d]", "", operation).lower()
            alike = [n for n in nodes if plain.startswith(n.op.lower()) or n.op.lower().startswith(plain)]
            ordered_paths = sorted(paths, key=_parse_suffix)
            if len(nodes) == 1 and module:
                table |= dict.fromkeys(ordered_paths, tuple(nodes))
            elif len(alike) == len(ordered_paths):
                table |= {path: (node,) for path, node in zip(ordered_paths, alike, strict=True)}
        return table


def _module_path(parts: Iterable[str]) -> str:
    """``layer1.0.conv1`` of ``layer1/0/conv1``, as of ``layer1/layer1.0/conv1``, where each part repeats the last."""
    module_parts: list[str] = []
    for part in parts:
        if module_parts and part.startswith(f"{module_parts[-1]}."):
            module_parts.pop()
        module_parts.append(part)
    return ".".join(module_parts)


def _parse_suffix(path: str) -> int:
    """The number at the end of a name; the first of several has none."""
    match = _COUNTED.search(path)
    return int(match[0][1:]) if match else 0

"""What two layers of two engines have to share to be the same work: its kind, its kernel and its shapes."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.relation import dataflow
from rtlab.relation.names import operator, words

#: What multiplies: the layers by which a network is known.
PRODUCTS = frozenset({"product", "deconvolution"})
#: One word for what compilers do in several kinds of layers: a product of matrices is a convolution of one point, and
#: the mean over all points is a pooling or a reduction.
_KINDS: Mapping[str, str] = {"convolution": "product", "matmul": "product", "reduce": "pooling"}
#: Operators in names, of ONNX and of PyTorch, where nothing else tells what a layer does.
_OPERATORS: tuple[tuple[str, str], ...] = (
    ("convtranspose", "deconvolution"), ("conv", "product"), ("gemm", "product"), ("matmul", "product"),
    ("matrix_multiply", "product"), ("quantizelinear", "quantization"), ("maxpool", "pooling"),
    ("averagepool", "pooling"), ("softmax", "softmax"), ("concat", "concat"),
)  # fmt: skip

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Signature:
    """A layer's work, without what a batch, a precision or a layout changes; None where a file does not tell.

    ``kernel``, ``stride`` and ``groups`` are a convolution's, empty, empty and 1 where one point is multiplied by a
    matrix. ``reads`` and ``writes`` are the shapes of the first tensor, for one sample, without ones at the end.
    """

    kind: str
    kernel: tuple[int, ...] | None = None
    stride: tuple[int, ...] | None = None
    groups: int | None = None
    reads: Shape | None = None
    writes: Shape | None = None

    @functools.cached_property
    def is_complete(self) -> bool:
        """Whether everything is told by which layers of this kind differ."""
        shapes = bool(self.reads and self.writes) and min(*self.reads, *self.writes) >= 0  # type: ignore[misc]
        return shapes and (self.kind not in PRODUCTS or self.kernel is not None)

    def is_like(self, other: Signature) -> bool:
        """Whether two may be the same work: nothing that both tell differs."""
        return (
            _kinds_agree(self.kind, other.kind)
            and self.has_same_kernel(other)
            and _shapes_agree(self.reads, other.reads)
            and _shapes_agree(self.writes, other.writes)
        )

    def is_near(self, other: Signature) -> bool:
        """Whether two products are the same, but one reads what was padded, or writes what was pooled, by itself."""
        return (
            self.kind == other.kind
            and self.kind in PRODUCTS
            and None not in {self.kernel, other.kernel, self.reads, other.reads, self.writes, other.writes}
            and self.has_same_kernel(other)
            and _first(self.reads) == _first(other.reads)
            and _first(self.writes) == _first(other.writes)
            and (self.reads == other.reads or self.writes == other.writes)
        )

    def has_same_kernel(self, other: Signature) -> bool:
        """Whether no difference of kernel, stride or groups is told."""
        mine, its = ((s.kernel, s.stride, s.groups) for s in (self, other))
        return all(a is None or b is None or a == b for a, b in zip(mine, its, strict=True))

    def contradicts(self, other: Signature) -> bool:
        """Whether two products cannot be the same node, however they were fused: kernel or all channels differ."""
        if self.kind not in PRODUCTS or other.kind not in PRODUCTS:
            return False
        ends = [(self.reads, other.reads), (self.writes, other.writes)]
        channel_pairs = [(_first(a), _first(b)) for a, b in ends if a and b]
        return not self.has_same_kernel(other) or (
            len(channel_pairs) == 2 and all(a != b for a, b in channel_pairs)
        )


def compute_signatures(engines: tuple[Engine, Engine]) -> tuple[dict[str, Signature], dict[str, Signature]]:
    """What each layer does, by its id; of two engines for other sizes of inputs, without the sizes of images."""
    ignore_sizes = _list_sample_shapes(engines[0]) != _list_sample_shapes(engines[1])
    first, second = (
        {y.id: _compute_signature(y, max(1, batch), ignore_sizes=ignore_sizes) for y in engine.layers}
        for engine in engines
        for batch in [next((t.shape[0] for t in engine.inputs if t.shape), 0)]
    )
    return first, second


def sizes(shape: Shape | None) -> Shape | None:
    """The sizes of a shape in no order, as of channels that come first or last."""
    return None if shape is None else tuple(sorted(shape))


def _list_sample_shapes(engine: Engine) -> tuple[Shape | None, ...]:
    """The shapes of an engine's inputs without the batch, in the order of their sizes."""
    shapes = [None if t.shape is None else t.shape[1:] for t in engine.inputs]
    return tuple(sorted(shapes, key=str))


#: Most layers do what another one does, and equal signatures are asked for what they are many times.
_make_signature = functools.lru_cache(4096)(Signature)


def _compute_signature(layer: Layer, batch: int, *, ignore_sizes: bool) -> Signature:
    work: str = dataflow.work(layer)
    kind = _kind_from_name(layer.name) if work == "other" else _KINDS.get(work, work)
    reads = _shape(layer.inputs, batch, ignore_sizes=ignore_sizes)
    writes = _shape(layer.outputs, batch, ignore_sizes=ignore_sizes)
    if kind not in PRODUCTS:
        return _make_signature(kind, reads=reads, writes=writes)
    # One layer that convolves and pools prefixes what it tells of each.
    kernel, stride = _dims(layer, "Kernel"), _dims(layer, "Stride")
    groups = layer.attributes.get("Groups", layer.attributes.get("ConvGroups"))
    groups = groups if isinstance(groups, int) else None
    if (kernel is not None and set(kernel) <= {1} and set(stride or ()) <= {1} and groups in {None, 1}) or (
        kernel is None and work == "matmul"
    ):
        kernel, stride, groups = (), (), 1
    return _make_signature(kind, kernel, stride, groups, reads, writes)


def _kind_from_name(name: str) -> str:
    """The kind of what a name's operators tell: of the first product, else all of them."""
    operators = [operator(w).lower() for w in words(name)]
    kinds = [k for word in operators for o, k in _OPERATORS if o in word]
    return next(
        (k for k in kinds if k in PRODUCTS), kinds[0] if kinds else f"?{'+'.join(filter(None, operators))}"
    )


def _dims(layer: Layer, key: str) -> tuple[int, ...] | None:
    dims = layer.attributes.get(key, layer.attributes.get(f"Conv{key}"))
    return tuple(dims) if isinstance(dims, (list, tuple)) else None


def _shape(tensors: tuple[Tensor, ...], batch: int, *, ignore_sizes: bool) -> Shape | None:
    shape = tensors[0].shape if tensors else None
    if not shape:
        return None
    # Steps between layers merge the batch with what follows it, and cut it off again.
    if shape[0] == batch:
        shape = shape[1:]
    elif shape[0] > 0 and shape[0] % batch == 0:
        shape = (shape[0] // batch, *shape[1:])
    while shape and shape[-1] == 1:
        shape = shape[:-1]
    if ignore_sizes:
        shape = shape[:1] if len(shape) > 2 else shape[-1:]
    return shape


def _kinds_agree(first: str, second: str) -> bool:
    """Whether two kinds may be one: what only a name tells without saying a product may be anything but one."""
    if first == second:
        return True
    untold = [k.startswith("?") for k in (first, second)]
    return untold[0] != untold[1] and not PRODUCTS & {first, second}


def _shapes_agree(first: Shape | None, second: Shape | None) -> bool:
    """Whether two shapes may be one; sizes below 0 are not told."""
    if first is None or second is None or first == second:
        return True
    return len(first) == len(second) and all(
        a == b or min(a, b) < 0 for a, b in zip(first, second, strict=True)
    )


def _first(shape: Shape | None) -> int | None:
    return shape[0] if shape else None


#: The part of the layers with one word that may do different work before all words of this sort are doubted.
_DOUBT = 0.05
#: A number that an exporter gave.
_NUMBERED = re.compile(r"_\d+$")


def find_shared_words(
    layer_words: tuple[Mapping[str, Sequence[str]], Mapping[str, Sequence[str]]],
    signs: tuple[Mapping[str, Signature], Mapping[str, Signature]],
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """The words that join the layers of both engines, by the id of the layer; ``signs`` tells what each layer does.

    Operators may be told by several layers of an engine; other words, such as those of weights, count where one layer
    of each has them.
    """
    # Most words are of one engine alone: a list for each would be searched for garbage.
    first, second = ({w for mine in side.values() for w in mine} for side in layer_words)
    one, two = (_index_words(side, first & second) for side in layer_words)
    kinds: dict[bool, set[str]] = {True: set(), False: set()}
    for word in one:
        if len(one[word]) == len(two[word]) == 1 or operator(word):
            kinds[bool(_NUMBERED.search(word))].add(word)
    # What has no number is believed first, and tells which layers with one numbered word are not the same.
    believed_words: set[str] = set()
    for numbered in (False, True):
        doubt_count = judged_count = 0
        for word in kinds[numbered]:
            if len(one[word]) == len(two[word]) == 1:
                i, j = one[word][0], two[word][0]
                steady = [kinds[False].intersection(layer_words[n][k]) for n, k in ((0, i), (1, j))]
                judged_count += 1
                doubt_count += signs[0][i].contradicts(signs[1][j]) or (numbered and steady[0] != steady[1])
        if doubt_count <= _DOUBT * judged_count:
            believed_words |= kinds[numbered]
    mine, theirs = (
        {i: tuple([w for w in words if w in believed_words]) for i, words in side.items()}
        for side in layer_words
    )
    return mine, theirs


def _index_words(
    layer_words: Mapping[str, Sequence[str]], common_words: Collection[str]
) -> Mapping[str, list[str]]:
    layers_by_word: defaultdict[str, list[str]] = defaultdict(list)
    for layer, mine in layer_words.items():
        for word in mine:
            if word in common_words:
                layers_by_word[word].append(layer)
    return layers_by_word

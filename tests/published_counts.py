"""NVIDIA's table of layers before and after fusion for TensorRT 3, taken apart: what each count contains.

``python tests/published_counts.py`` writes the page, with every release of TensorRT-RTX that is here.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pages
import published_nets
import rtlab
from rtlab import backends
from rtlab.backends.log import verbose
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant

PAGE = Path(__file__).parents[1] / "docs" / "published-counts.md"
#: Before and after, as printed; GoogLeNet is not in the table, and its figures are those of a log of TensorRT 5.1.
PRINTED = {"googlenet": (141, 66), "vgg19": (43, 27), "inception_v3": (309, 113), "resnet152": (670, 159)}
NETS: dict[str, Callable[[], Model]] = {n: getattr(published_nets, n) for n in PRINTED}
TITLES = {
    "googlenet": "GoogLeNet",
    "vgg19": "VGG19",
    "inception_v3": "Inception V3",
    "resnet152": "ResNet-152",
}
#: The releases of TensorRT-RTX in the page.
RELEASES = ("1.4.0.76", "1.5.0.114", "1.6.1.120", "1.7.1.116")


def predicted(model: Model) -> Engine:
    """The engine that the rules predict."""
    return backends.get("classic").build(BuildRequest(model, Variant.of("fp32", target="sm86")), Silent())


@functools.cache
def made(name: str) -> Model:
    """A network of the table."""
    return NETS[name]()


def counts(model: Model) -> tuple[int, ...]:
    """The layers before the passes, and after each pass that changed their number."""
    return verbose.parse(predicted(model).log).log.attempts[0].counts


def built(model: Model, release: str) -> int:
    """The layers that a release of TensorRT-RTX makes of a model in FP32, its waiting between streams left out."""
    study = rtlab.Study(model)
    study.add("rtx", precision="fp32", target="sm86", backend="tensorrt-rtx", compiler=release)
    study.run(["rtx"], compare=False, budget_s=0)
    engine = study["rtx"].engine
    return len(engine.layers) - engine.sync


def operators(model: Model) -> collections.Counter[str]:
    """How many nodes of each operator: what a count before contains."""
    return collections.Counter(n.op for n in model.top)


def after_dense(model: Model) -> list[str]:
    """The ReLUs behind fully connected layers: convolutions whose output has one position."""
    found = []
    for node in model.top:
        if node.op == "Relu":
            conv = model.producers[node.inputs[0]]
            shape = model.values[conv.outputs[0]].shape
            if conv.op == "Conv" and shape is not None and tuple(shape[2:]) == (1, 1):
                found.append(node.id)
    return found


# --- Inception V3 by its blocks ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class InceptionBlock:
    """A Concat with the convolutions before it: the widths of those that read the block's input and are alike."""

    concat: str
    kind: str
    siblings: tuple[int, ...]


#: Kinds of blocks by the size of what they write, and the reductions between them.
KINDS = ("35x35", "17x17", "8x8", "reduction")


def blocks(model: Model) -> list[InceptionBlock]:
    """The blocks of Inception V3, found in the graph: not from what a pass decided."""
    concats = [n for n in model.top if n.op == "Concat"]
    alike: dict[tuple[object, ...], list[int]] = collections.defaultdict(list)
    for node in model.top:
        if node.op == "Conv":
            told = node.attributes
            key = (node.inputs[0], *(str(told.get(k)) for k in ("kernel_shape", "strides", "pads")))
            alike[key].append(int(model.values[node.inputs[1]].shape[0]))  # type: ignore[index, arg-type]
    found, read = [], [n.outputs[0] for n in concats]
    pools = [n for n in model.top if n.op == "MaxPool"]
    stem = pools[1].outputs[0]
    for concat, source in zip(concats, [stem, *read], strict=False):
        size = model.values[concat.outputs[0]].shape[2]  # type: ignore[index]
        reduces = size != model.values[source].shape[2]  # type: ignore[index]
        groups = [w for (value, *_), w in alike.items() if value == source and len(w) > 1]
        widths = tuple(groups[0]) if groups else ()
        found.append(InceptionBlock(concat.id, "reduction" if reduces else f"{size}x{size}", widths))
    return found


def savings(kind: str, found: Iterable[InceptionBlock]) -> list[tuple[int, str]]:
    """By how many layers the blocks of one kind may lessen the count, all treated alike, and what that means."""
    mine = [b for b in found if b.kind == kind]
    merges = sum(bool(b.siblings) for b in mine)
    if kind == "reduction":
        gone = len(mine)
        return [
            (0, "as they are"),
            (merges, "its two siblings are one layer"),
            (gone, "their concatenations are gone"),
            (gone + merges, "their concatenations are gone, and the two siblings are one layer"),
        ]
    one = "their concatenations are gone, or two siblings each are one layer"
    two = "three siblings each are one layer; the concatenation stays, or a copy stands for it"
    return [(0, "as they are"), (len(mine), one), (2 * len(mine), two)]


def ways(found: list[InceptionBlock], wanted: int) -> Iterator[dict[str, tuple[int, str]]]:
    """All ways to lessen the count by so many layers in which blocks of one kind are treated alike."""
    for chosen in itertools.product(*(savings(k, found) for k in KINDS)):
        if sum(n for n, _ in chosen) == wanted:
            yield dict(zip(KINDS, chosen, strict=True))


def uniform(found: list[InceptionBlock]) -> dict[tuple[str, str], int]:
    """By how many layers rules lessen the count that hold in every block: one for siblings, one for concatenations."""
    merging: dict[str, Callable[[tuple[int, ...]], tuple[int, bool]]] = {
        "no siblings merged": lambda _w: (0, False),
        "all siblings merged": lambda w: (max(0, len(w) - 1), len(w) > 2),
        "two siblings merged, the third left to the concatenation": lambda w: (min(1, len(w) // 2), False),
        "siblings of equal width merged": lambda w: (len(w) - len(set(w)), w.count(w[0]) > 1 if len(w) > 2 else False),
    }  # fmt: skip
    taken = {}
    for name, merge in merging.items():
        saved = sum(merge(b.siblings)[0] for b in found)
        # The first sibling of three is what the concatenation reads.
        held = sum(merge(b.siblings)[1] for b in found)
        plain = len(found) - held
        taken |= {
            (name, "all concatenations stay"): saved,
            (name, "gone, with a copy where a merged layer wrote"): saved + len(found) - held,
            (name, "gone where nothing needs a copy"): saved + plain,
            (name, "gone without copies"): saved + len(found),
            (name, "gone but where a pooling is read"): saved + plain - sum(b.kind == "reduction" for b in found),
        }  # fmt: skip
    return taken


# --- the page ---------------------------------------------------------------------------------------------------------


def _contents(found: collections.Counter[str]) -> str:
    return ", ".join(f"{n} {op}" for op, n in found.most_common())


def lines(rtx: dict[str, dict[str, int]]) -> list[str]:
    """The page; ``rtx`` are the layers that each release makes of each network."""
    models = {name: made(name) for name in NETS}
    passes = {name: counts(m) for name, m in models.items()}
    dense = after_dense(models["vgg19"])

    def row(name: str) -> list[object]:
        before, after = (f"{n} (log)" if name == "googlenet" else str(n) for n in PRINTED[name])
        return [TITLES[name], before, passes[name][0], after, passes[name][-1], *rtx[name].values()]

    heads = [
        "network",
        "before, printed",
        "remade",
        "after, printed",
        "predicted",
        *(f"RTX {r}" for r in RELEASES),
    ]
    return [
        "# NVIDIA's counts of layers for TensorRT 3, taken apart",
        "",
        *pages.flow("""
            NVIDIA printed for TensorRT 3 how many layers three networks have before and after fusion: VGG19 43 and 27,
            Inception V3 309 and 113, ResNet-152 670 and 159. Here each network is remade as ONNX to its published list
            of layers, with an eighth of the channels; rtlab's passes (`backend="classic"`) predict what is left, and
            each release of TensorRT-RTX builds it in FP32 for sm86 (reported). GoogLeNet, which is not in that table,
            stands beside them because a log of TensorRT 5.1 tells every decision. `python tests/published_counts.py`
            writes this page.
        """),
        *pages.rows(heads, map(row, NETS)),
        "What the counts before contain:",
        "",
        *(f"- {TITLES[n]}: {_contents(operators(m))}: {passes[n][0]}." for n, m in models.items()),
        "",
        *_vgg(passes["vgg19"], dense),
        *_resnet(models["resnet152"]),
        *_inception(models["inception_v3"], passes["inception_v3"]),
    ]  # fmt: skip


def _vgg(passes: tuple[int, ...], dense: list[str]) -> list[str]:
    before, after = passes[0], passes[-1]
    return [
        f"## VGG19: 27 = {after} + {len(dense)}",
        "",
        *pages.flow(f"""
            Sixteen convolutions with their ReLUs, five poolings, three fully connected layers and the softmax are
            {16 + 5 + 3 + 1}; the two ReLUs behind fully connected layers make 27. The predicted passes fuse these two,
            as logs of later releases do (`Fusing fc6 with relu6`).

            - Certain: {before} layers are those without the two Dropouts, which would make {before + 2}. The two more
            layers are no poolings, classifier or softmax, which are counted already.
            - Assumed: that TensorRT 3 did not fuse a fully connected layer with its ReLU. No log of it is at hand.
        """),
    ]


def _resnet(model: Model) -> list[str]:
    found = operators(model)
    convs, norms = found["Conv"] - 1, found["BatchNormalization"]
    return [
        "## ResNet-152: 159, as printed",
        "",
        *pages.flow(f"""
            {convs} convolutions with all that follows them (normalization, scale, sum, ReLU), two poolings, the
            classifier and its softmax are {convs + 4}. Certain: 670 needs normalization and scale as two layers, as in
            Caffe's file; with one there are {670 - norms // 2}. 159 leaves no room for a layer that changes a format:
            the printed counts are those of the builder's passes, and not of a profile.
        """),
    ]


def _inception(model: Model, passes: tuple[int, ...]) -> list[str]:
    found, nested = blocks(model), counts(published_nets.inception_v3(nested=True))
    before, vertical, merged, after = passes[0], passes[2], passes[3], passes[-1]
    wanted = vertical - PRINTED["inception_v3"][1]
    rules = uniform(found)
    near = sorted(rules.items(), key=lambda r: (abs(r[1] - wanted), r[0]))
    solved = [*ways(found, wanted)]
    held = [f"{a}; {b}" for (a, b), n in rules.items() if n == wanted]
    return [
        f"## Inception V3: 113 = {vertical} - {wanted}, and the figure alone does not tell which {wanted}",
        "",
        *pages.flow(f"""
            94 convolutions with normalization and ReLU, 14 poolings, 11 concatenations, the classifier and its softmax
            are {vertical} after the vertical fusions. The rules take {vertical - after} more: {vertical - merged} by
            merging siblings, and 11 concatenations, for 9 of which a copy is made: {after}.

            Certain, if the list is the published one and every convolution takes its normalization and ReLU (as all
            155 of ResNet-152 do):

            - TensorRT 3 took {wanted} layers in place of {vertical - after}. A concatenation that goes where no
            siblings were merged takes one, and one that goes and leaves a copy takes none, while the merge that forced
            the copy took at least one. So if all 11 were gone, at most {vertical - 11} would be left: at least
            {11 - wanted} concatenations stayed, or copies in their place, for a reason other than merged siblings.
            - A list with nested concatenations (TF-Slim, Keras, torchvision) has {nested[0]} layers and not {before},
            and the rules leave {nested[-1]}; one with normalization and scale apart (Caffe) has {before + 94}. With one
            concatenation of six, as in the first release for TensorFlow, there are {before}.
            - The rules themselves were not new: a published profile of TensorRT 2.1 lists the same 66 layers of
            GoogLeNet, with nine merged triples and nine copies, as the log of TensorRT 5.1.

            So the difference of {113 - after} is not one release's general rule against another's. What is left to
            assume is which blocks were exempt. Where blocks of one kind are treated alike there are {len(solved)} ways
            to take {wanted} layers:
        """),
        *pages.rows(
            ("35x35 (3 blocks)", "17x17 (4 blocks)", "8x8 (2 blocks)", "reductions (2)"),
            ([f"{way[k][0]}: {way[k][1]}" for k in KINDS] for way in solved),
        ),
        "Rules that hold in every block alike, by what they leave:",
        "",
        *pages.rows(("siblings", "concatenations", "layers"), ((a, b, vertical - n) for (a, b), n in near)),
        *pages.flow(f"""
            {"None leaves 113" if not held else f"113 is left by: {'; '.join(held)}"}. The figure cannot decide between
            the ways above, nor whether the network had layers that the published list lacks; rtlab predicts {after}
            and says so.
        """),
    ]


def told(text: str) -> dict[str, dict[str, int]]:
    """The layers by release that a page tells."""
    rows = {}
    for name, title in TITLES.items():
        if row := re.search(rf"^\| {title} \|(.*)\|$", text, re.MULTILINE):
            cells = [c.strip() for c in row[1].split("|")][4:]
            rows[name] = dict(zip(RELEASES, map(int, cells), strict=True))
    return rows


if __name__ == "__main__":
    asked = {name: {r: built(made(name), r) for r in RELEASES} for name in NETS}
    PAGE.write_text("\n".join(lines(asked)), encoding="utf-8")

"""Write ``cards.json``, which ``rtlab.samples.list()`` shows, and the table of samples in the README beside it.

The percents are those of the README's tables of scores, which a test measures anew. Run it after a sample changed:

    python sample_models/make_cards.py
"""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path

import numpy as np
from PIL import Image

from rtlab import samples
from rtlab.analyses.cards.card import get_family
from rtlab.core.model import Model

HERE = Path(__file__).parent
README = HERE / "README.md"
OWN = "Apache-2.0, as rtlab"
#: What the trained ones answer, on what, and its licence; the digits are the others'.
TASKS = {
    "sentences": ("which of ten animals acts", "sentences of a grammar of 40 words", ""),
    "characters": ("which character comes next", "rtlab's documentation", ""),
}
DIGITS = ("which of ten digits was written", "digits of scikit-learn", "CC BY 4.0")
ARCHITECTURES = "rtlab.samples.architectures"
BLOCKS = "rtlab.samples.blocks"
#: The title of each, what it is there to show, and what makes it.
SHOWS: dict[str, tuple[str, str, str]] = {
    "digits_inception": (
        "Handwritten digits, Inception",
        "two Inception blocks, batch normalisation as nodes of its own, a residual",
        "make_digits_inception.py",
    ),
    "digits_outlier": (
        "Handwritten digits, outlier channels",
        "depthwise-separable, with channels that are rarely active and then very large",
        "make_digits_outlier.py",
    ),
    "digits_mobilenet": (
        "Handwritten digits, MobileNetV2",
        "inverted residuals: depthwise filters, ReLU6 as Clip, linear projections",
        "make_digits_mobilenet.py",
    ),
    "digits_dark": (
        "Handwritten digits, bytes on black",
        "squeeze-and-excitation gates; pictures as bytes over 255, on black",
        "make_digits_gate.py",
    ),
    "digits_light": (
        "Handwritten digits, bytes on white",
        "squeeze-and-excitation gates; pictures as bytes over 255, on white",
        "make_digits_gate.py",
    ),
    "digits_vit": (
        "Handwritten digits, vision transformer",
        "a vision transformer: LayerNormalization, attention, GELU in five nodes",
        "make_digits_vit.py",
    ),
    "digits_lstm": (
        "Handwritten digits, LSTM",
        "an LSTM over eight rows of eight pixels",
        "make_digits_recurrent.py",
    ),
    "digits_gru": ("Handwritten digits, GRU", "a GRU over 32 rows of 32 pixels", "make_digits_recurrent.py"),
    "digits_qat": (
        "Handwritten digits, trained for INT8",
        "a residual network trained with INT8 in the loop, Q/DQ well placed",
        "make_digits_qat.py",
    ),
    "digits_qat_misplaced": (
        "Handwritten digits, misplaced Q/DQ",
        "the same network, Q/DQ as ONNX Runtime places them",
        "make_digits_qat.py",
    ),
    "digits_sparse24": (
        "Handwritten digits, 2:4 sparse",
        "a residual network, 2:4 sparse along the input channels",
        "make_digits_sparse24.py",
    ),
    "fp16_overflow": (
        "A sum that FP16 cannot hold",
        "one sum beyond 65,504, the end of FP16",
        "make_fp16_overflow.py",
    ),
    "sentences": (
        "Who acts, an encoder with an attention mask",
        "an encoder as in BERT that reads token ids with an attention mask",
        "make_sentences.py",
    ),
    "characters": (
        "The next character, a decoder",
        "a decoder with a causal mask that writes English; its score is a perplexity",
        "make_characters.py",
    ),
    "googlenet": (
        "GoogLeNet, synthetic weights",
        "nine Inception blocks, the classic figure of vertical and horizontal fusion",
        f"{ARCHITECTURES}.googlenet",
    ),
    "resnet50": (
        "ResNet-50, synthetic weights",
        "53 convolutions and 16 residual additions",
        f"{ARCHITECTURES}.resnet50",
    ),
    "mobilenet_v2": (
        "MobileNetV2, synthetic weights",
        "17 blocks with a depthwise convolution each",
        f"{ARCHITECTURES}.mobilenet_v2",
    ),
    "csp_detector": (
        "A detector of CSP blocks with SiLU, synthetic weights",
        "a detector's CSP blocks with SiLU and a pyramid of three maps",
        f"{ARCHITECTURES}.csp_detector",
    ),
    "bert": (
        "BERT, four layers, synthetic weights",
        "four encoder layers of BERT-base's size",
        "rtlab.samples.transformers.bert",
    ),
    "decoder_with_cache": (
        "A decoder with a cache, synthetic weights",
        "two layers as Llama's: past keys and values as inputs, rotary positions, shared heads, SwiGLU",
        f"{BLOCKS}.decoder_with_cache",
    ),
    "unet_block": (
        "A U-Net's block, synthetic weights",
        "convolutions with group normalisation, self and cross attention, as in a diffusion model",
        f"{BLOCKS}.unet_block",
    ),
    "whisper_encoder": (
        "Whisper's encoder, two layers, synthetic weights",
        "two convolutions in one dimension with GELU, a table of positions, encoder blocks",
        f"{BLOCKS}.whisper_encoder",
    ),
    "mixture_of_experts": (
        "A mixture of experts, synthetic weights",
        "a router that chooses two of four experts by TopK, and their weighted sum",
        f"{BLOCKS}.mixture_of_experts",
    ),
    "dynamic_shapes": (
        "Attention of dynamic length",
        "self-attention over N×length×32: computed shapes, constants to fold, views",
        "make_traits.py",
    ),
    "control_flow": ("A branch", "an If whose bodies read values of the outer graph", "make_traits.py"),
    "hostile_names": (
        "Hostile names",
        "names that are missing, repeated, very long, or full of separators and markup",
        "make_traits.py",
    ),
}
#: The page's colours of families, on light ground and dark alike.
COLOURS = {
    "convolution": "#4d82c2",
    "matmul": "#6d74c9",
    "activation": "#b5654c",
    "pool": "#549451",
    "shape": "#93826a",
    "normalization": "#2f928f",
    "quantize": "#9569c4",
    "control": "#ab5288",
    "other": "#7d838d",
}
WIDE, HIGH, READS = 240, 64, 44


def silhouette(model: Model, left: float) -> str:
    """Each node as a block, by how many others come before it, in the colour of its family; edges behind them."""
    depth: dict[str, int] = {}
    for node in model.top:
        before = [depth[model.producers[v].id] for v in node.inputs if v in model.producers]
        depth[node.id] = 1 + max(before, default=-1)
    fed = set(model.inputs)
    for node in model.top:
        if not fed.isdisjoint(node.inputs):
            fed.update(node.outputs)
    # What weights pass through stands right before the node that they are for.
    for node in reversed(model.top):
        if fed.isdisjoint(node.outputs):
            after = [depth[n.id] for v in node.outputs for n in model.consumers.get(v, ()) if n.id in depth]
            depth[node.id] = max(min(after, default=1) - 1, 0)
    rows: dict[int, list[str]] = {}
    for node in model.top:
        rows.setdefault(depth[node.id], []).append(node.id)
    step = (WIDE - left) / len(rows)
    lane = min(9.0, HIGH / max(map(len, rows.values())))
    places = {
        n: (left + step * (k + 0.5), HIGH / 2 + lane * (j - (len(ids) - 1) / 2))
        for k, ids in rows.items()
        for j, n in enumerate(ids)
    }
    edges, blocks = [], dict[str, list[str]]()
    width, height = min(0.72 * step, 10), min(0.72 * lane, 6)
    for node in model.top:
        x, y = places[node.id]
        blocks.setdefault(COLOURS[get_family(node.op)], []).append(
            f"M{x - width / 2:.1f} {y - height / 2:.1f}h{width:.1f}v{height:.1f}h-{width:.1f}z"
        )
        for value in dict.fromkeys(node.inputs):
            if value not in model.producers:
                continue
            x0, y0 = places[model.producers[value].id]
            # What jumps over others bows around them.
            bow = 0 if x - x0 < 1.5 * step else -min(HIGH / 2 - 4, 6 + 0.12 * (x - x0))
            edges.append(
                f"M{x0:.1f} {y0:.1f}Q{(x0 + x) / 2:.1f} {(y0 + y) / 2 + 2 * bow:.1f} {x:.1f} {y:.1f}"
            )
    drawn = "".join(f'<path d="{"".join(d)}" fill="{colour}"/>' for colour, d in blocks.items())
    return f'<path d="{"".join(edges)}" fill="none" stroke="#8889" stroke-width=".7"/>{drawn}'


def reads(sample: samples.Sample) -> tuple[str, str]:
    """The first sample as a picture, and in words; nothing where the input is no picture."""
    first = next(iter(sample.calibration.take(1).arrays.values()))[0]
    if first.ndim != 3 or first.shape[0] not in {1, 3} or sample.name in TRAITS:
        return "", ""
    pixels = np.moveaxis(np.asarray(first, float), 0, -1)
    low, high = np.percentile(pixels, [1, 99])
    grey = np.clip((pixels - low) / max(high - low, 1e-9), 0, 1) * 255
    image = Image.fromarray(grey.squeeze().astype(np.uint8)).resize((READS, READS), Image.Resampling.BILINEAR)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=70) if image.mode == "RGB" else image.save(file, "PNG", optimize=True)
    kind = "jpeg" if image.mode == "RGB" else "png"
    data = base64.b64encode(file.getvalue()).decode()
    place = f'x="0" y="{(HIGH - READS) / 2:.0f}" width="{READS}" height="{READS}"'
    return (
        f'<image {place} href="data:image/{kind};base64,{data}"/>',
        ", after the first picture that it reads",
    )


def thumbnail(sample: samples.Sample) -> str:
    """What the sample reads and its graph, as SVG."""
    picture, words = reads(sample)
    graph = silhouette(sample.model, READS + 10 if picture else 0)
    return (
        f'<svg viewBox="0 0 {WIDE} {HIGH}" width="100%" role="img" '
        f'aria-label="The graph of {sample.name} from input to output{words}">{picture}{graph}</svg>'
    )


TRAITS = ("dynamic_shapes", "control_flow", "hostile_names")


def accuracies() -> dict[str, dict[str, float]]:
    """Percent right from the README's two tables of scores: fp32, int8, and what ruins it."""
    found: dict[str, dict[str, float]] = {}
    names: list[str] = []
    for line in README.read_text(encoding="utf-8").splitlines():
        cells = [c.strip(" *`") for c in line.strip("|").split("|")]
        if line.startswith("| | fp32 |"):
            precisions = {"fp32", "fp16", "bf16", "int8 auto", "fp8", "int4"}
            names = [c if c in precisions else f"int8 {c}" for c in cells[1:]]
        elif cells[0] in SHOWS and names and len(cells) == len(names) + 1:
            scores = dict(zip(names, map(float, cells[1:]), strict=True))
            ruined = {k for k, percent in scores.items() if percent < scores["fp32"] - 5}
            found[cells[0]] = {k: v for k, v in scores.items() if k in {"fp32", "int8 auto"} | ruined}
        elif re.match(r"\| `\w+` \| [\d.]+ \|$", line):
            found[cells[0]] = {"as it is": float(cells[1])}
    return found


def card(sample: samples.Sample, accuracy: dict[str, float]) -> dict[str, object]:
    """One card as ``rtlab.samples.SampleCard`` reads it."""
    title, trait, script = SHOWS[sample.name]
    task = sample.task
    answer, data, licence = TASKS.get(sample.name, DIGITS) if task else ("not trained", "", "")
    return {
        "name": sample.name,
        "title": title,
        "trait": f"{trait[0].upper()}{trait[1:]}.",
        "task": answer,
        "data": _data(sample, data),
        "script": script,
        "licence": f"model {OWN}; {data}, {licence}" if licence else OWN,
        "nodes": len(sample.model.nodes),
        "metric": "" if task is None else "perplexity" if task.name == "perplexity" else "right",
        "accuracy": accuracy,
        "measured_on": 0 if task is None else len(task.labels),
        "thumbnail": thumbnail(sample),
    }


def _data(sample: samples.Sample, source: str) -> str:
    seen = len(sample.calibration)
    if sample.task is None:
        return f"{sample.calibration.source}, as many as are asked for (by default {seen})"
    return f"{source}: {seen} to calibrate on, {len(sample.task.labels)} to score on"


def table(cards: list[dict[str, object]]) -> str:
    """The README's table of files."""
    rows = ["| file | nodes | size | trait | script |", "|---|---|---|---|---|"]
    for found in cards:
        file = HERE / f"{found['name']}.onnx"
        if file.exists():
            trait = SHOWS[str(found["name"])][1]
            size = f"{round(file.stat().st_size / 1000)} kB"
            rows.append(f"| `{file.name}` | {found['nodes']} | {size} | {trait} | `{found['script']}` |")
    return "\n".join(rows)


def main() -> None:
    """Write both files."""
    accuracy = accuracies()
    cards = [card(samples.load(name), accuracy.get(name, {})) for name in samples.names()]
    (HERE / "cards.json").write_text(json.dumps(cards, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    text = README.read_text(encoding="utf-8")
    kept = [line for line in text.splitlines() if line.startswith("| `") and ".npz`" in line]
    made = "\n".join([table(cards), *kept])
    text = re.sub(r"\| file \| nodes .*?\n\n", lambda _: f"{made}\n\n", text, count=1, flags=re.DOTALL)
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

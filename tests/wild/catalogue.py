"""The strangers: which architectures are exported, by which exporter, at which opset, with which sizes left open.

Nothing of torch is imported before a model is made, so that the list can be read without it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

Shape = tuple[int, ...]
_IMAGE: Mapping[str, Shape] = {"x": (1, 3, 224, 224)}
_BATCH = {"x": {0: "batch"}}
_SIZES = {"x": {0: "batch", 2: "height", 3: "width"}}
_SQUARE: Mapping[str, Shape] = {"x": (1, 3, 256, 256)}


@dataclasses.dataclass(frozen=True)
class Case:
    """One model file to be made and opened: ``make`` gives the PyTorch module, or the path of a file of ``onnx``.

    Inputs stand in the order of ``forward``; integers stay ``below`` a number, and axes that are ``free`` have names.
    """

    name: str
    source: str
    make: Callable[[], Any]
    inputs: Mapping[str, Shape] = dataclasses.field(default_factory=lambda: dict(_IMAGE))
    below: Mapping[str, int] = dataclasses.field(default_factory=dict)
    opset: int = 17
    dynamo: bool = False
    free: Mapping[str, Mapping[int, str]] = dataclasses.field(default_factory=dict)
    half: bool = False

    @property
    def exporter(self) -> str:
        return "as it is" if self.source == "onnx" else "dynamo" if self.dynamo else "TorchScript"

    @property
    def architecture(self) -> str:
        return " ".join(self.name.split()[:2])

    @property
    def traits(self) -> str:
        axes = dict.fromkeys(name for free in self.free.values() for name in free.values())
        return ", ".join(["dynamic " + "/".join(axes)] * bool(axes) + ["FP16"] * self.half)


def cases() -> dict[str, Case]:
    every = [*_torchvision(), *_timm(), *_transformers(), *_torch(), *_onnx()]
    found = {case.name: case for case in every}
    assert len(found) == len(every)
    return found


def _torchvision() -> list[Case]:
    def case(name: str, path: str = "", title: str = "", **more: Any) -> Case:
        path = path or name
        return Case(title or f"torchvision {name}", "torchvision", lambda: _vision(path), **more)

    dynamo = {"dynamo": True, "opset": 18}
    return [
        case("mobilenet_v3_small"), case("squeezenet1_1", opset=9), case("resnet50", opset=11),
        case("resnet50", title="torchvision resnet50 FP16", half=True),
        case("mobilenet_v3_small", title="torchvision mobilenet_v3_small dynamo", **dynamo),
        case("mobilenet_v3_small", title="torchvision mobilenet_v3_small dynamic", free=_SIZES), case("vit_b_16"),
        case("swin_t"), case("vit_b_16", title="torchvision vit_b_16 dynamo", **dynamo),
        case("swin_t", title="torchvision swin_t dynamo", **dynamo),
        case("vit_b_16", title="torchvision vit_b_16 FP16", half=True), case("alexnet", opset=9),
        case("vgg11", opset=10), case("resnet18", opset=9, free=_BATCH), case("resnext50_32x4d", opset=12),
        case("densenet121", opset=10), case("googlenet", opset=13),
        case("inception_v3", opset=14, inputs={"x": (1, 3, 299, 299)}), case("mobilenet_v2", opset=12, free=_BATCH),
        case("mobilenet_v3_large", dynamo=True, opset=20), case("mnasnet1_0", opset=15),
        case("shufflenet_v2_x1_0", opset=16), case("efficientnet_b0", dynamo=True, opset=21),
        case("efficientnet_v2_s"), case("regnet_y_400mf", opset=13), case("convnext_tiny", **dynamo),
        case("swin_v2_t", opset=18), case("maxvit_t", **dynamo),
        case("lraspp_mobilenet_v3_large", "segmentation.lraspp_mobilenet_v3_large", free=_SIZES),
        case("deeplabv3_mobilenet_v3_large", "segmentation.deeplabv3_mobilenet_v3_large", opset=13),
        case("fcn_resnet50", "segmentation.fcn_resnet50", opset=11),
        case("ssdlite320", "detection.ssdlite320_mobilenet_v3_large", inputs={"x": (1, 3, 320, 320)}),
        case("r3d_18", "video.r3d_18", inputs={"x": (1, 3, 8, 112, 112)}),
        case("raft_small", "optical_flow.raft_small", inputs={"a": (1, 3, 128, 160), "b": (1, 3, 128, 160)}),
    ]  # fmt: skip


def _timm() -> list[Case]:
    def case(name: str, title: str = "", **more: Any) -> Case:
        return Case(title or f"timm {name}", "timm", lambda: _pytorch_image_model(name), **more)

    dynamo = {"dynamo": True, "opset": 18}
    return [
        case("mobilenetv4_conv_small"), case("mobilevit_xxs", inputs=_SQUARE),
        case("deit_tiny_patch16_224", **dynamo), case("mixer_s32_224"), case("poolformer_s12", **dynamo),
        case("ghostnet_100", opset=11), case("lcnet_050", opset=10), case("tf_efficientnet_lite0", opset=13),
        case("edgenext_xx_small", inputs=_SQUARE), case("efficientformer_l1"), case("levit_128s", **dynamo),
        case("xcit_nano_12_p16_224"), case("coat_lite_tiny"),
        case("crossvit_tiny_240", inputs={"x": (1, 3, 240, 240)}, **dynamo), case("repvgg_a0", opset=9),
        case("res2net50_26w_4s", opset=12), case("skresnet18", free=_BATCH), case("eca_nfnet_l0", **dynamo),
        case("hrnet_w18_small", opset=11), case("dla34", opset=9), case("volo_d1_224", **dynamo),
        case("gmlp_s16_224", half=True), case("twins_svt_small", **dynamo), case("fastvit_t8", inputs=_SQUARE),
        case("convmixer_768_32", opset=12), case("beit_base_patch16_224", **dynamo),
        case("vit_tiny_patch16_224", half=True), case("tiny_vit_5m_224"),
        case("maxxvit_rmlp_nano_rw_256", inputs=_SQUARE, **dynamo),
    ]  # fmt: skip


def _transformers() -> list[Case]:
    def case(kind: str, inputs: Mapping[str, Shape], title: str = "", sizes: Any = None, **more: Any) -> Case:
        made = functools.partial(_named, kind, tuple(inputs), sizes or {})
        return Case(title or f"transformers {kind}", "transformers", made, inputs=inputs, **more)

    def text(kind: str, title: str = "", mask: bool = True, dynamic: bool = False, **more: Any) -> Case:
        names = ("input_ids", "attention_mask")[: 1 + mask]
        free = {n: {0: "batch", 1: "sequence"} for n in names} if dynamic else {}
        below = {"input_ids": 1000, "attention_mask": 2}
        return case(kind, dict.fromkeys(names, (1, 64)), title, below=below, free=free, **more)

    wide = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512}
    words, image = {"vocab_size": 1000}, {"pixel_values": (1, 3, 224, 224)}
    small, dynamo, once = words | wide, {"dynamo": True, "opset": 18}, {"use_cache": False}
    distil = {"dim": 128, "n_layers": 2, "n_heads": 4, "hidden_dim": 512}
    gpt2, llama = {"n_embd": 128, "n_layer": 2, "n_head": 4, **once}, {"num_key_value_heads": 2, **once}
    t5 = {"d_model": 128, "d_ff": 512, "num_layers": 2, "num_heads": 4, "d_kv": 32}
    return [
        text("BertModel", sizes=small, **dynamo),
        text("BertModel", "transformers BertModel TorchScript", sizes=small, opset=14),
        text("BertModel", "transformers BertModel dynamic", sizes=small, dynamic=True, **dynamo),
        text("BertModel", "transformers BertModel FP16", sizes=small, half=True, **dynamo),
        text("BertModel", "transformers BertModel base", sizes={"num_hidden_layers": 12}, mask=False, **dynamo),
        text("RobertaModel", sizes=small, **dynamo), text("ElectraModel", sizes=small, opset=14),
        text("AlbertModel", sizes=small, **dynamo),
        text("MobileBertModel", sizes={**words, "num_hidden_layers": 2}, **dynamo),
        text("DistilBertModel", opset=16, sizes=words | distil),
        text("GPT2Model", mask=False, sizes=words | gpt2, **dynamo),
        text("LlamaModel", mask=False, dynamo=True, opset=20, sizes=small | llama),
        text("T5EncoderModel", mask=False, sizes=words | t5, **dynamo),
        case("ViTModel", image, sizes=wide, **dynamo), case("SegformerModel", image, opset=14),
        case("Wav2Vec2Model", {"input_values": (1, 8000)}, sizes=wide, **dynamo),
        case("CLIPVisionModel", image, sizes=wide, **dynamo),
    ]  # fmt: skip


def models_of_today() -> dict[str, Case]:
    """Small transformers of today, with heads of 64 numbers, each by both exporters: what ``grid.py`` builds."""
    words = {"vocab_size": 1000, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    size = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512}
    llama = words | size | {"num_key_value_heads": 2, "head_dim": 64, "use_cache": False}
    # Of the other ways to compute experts, neither exporter writes one.
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "experts_implementation": "batched_mm"}
    tower = size | {"image_size": 112, "patch_size": 16}
    whisper = {
        "d_model": 256, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512, "max_source_positions": 64,
        "max_target_positions": 64, "num_mel_bins": 80, "decoder_start_token_id": 1, "use_cache": False,
    }  # fmt: skip
    text: Mapping[str, Shape] = dict.fromkeys(("input_ids", "attention_mask"), (1, 64))
    image: Mapping[str, Shape] = {"pixel_values": (1, 3, 112, 112)}
    heard: Mapping[str, Shape] = {
        "input_ids": (1, 32), "attention_mask": (1, 32), "encoder_hidden_states": (1, 64, 256)
    }  # fmt: skip
    block: Mapping[str, Shape] = {
        "sample": (1, 128, 16, 16), "temb": (1, 64), "encoder_hidden_states": (1, 20, 96)
    }  # fmt: skip
    clip = {f"{part}_config": tower | words for part in ("text", "vision")}
    modules: dict[str, tuple[Callable[[], Any], Mapping[str, Shape]]] = {
        "Llama": (_transformer("LlamaForCausalLM", text, llama, "logits"), text),
        "Qwen2": (_transformer("Qwen2ForCausalLM", text, llama, "logits"), text),
        "Qwen3": (_transformer("Qwen3ForCausalLM", text, llama, "logits"), text),
        "Mixtral, mixture of experts": (
            _transformer("MixtralForCausalLM", text, llama | experts, "logits"), text
        ),
        "BERT": (_transformer("BertModel", text, words | size), text),
        "ViT": (_transformer("ViTModel", image, tower), image),
        "DINOv2": (_transformer("Dinov2Model", image, tower), image),
        "CLIP": (_transformer("CLIPModel", text | image, clip, "logits_per_image"), text | image),
        "Whisper, encoder": (
            _transformer("WhisperModel", names := {"input_features": (1, 80, 128)}, words | whisper, part="encoder"),
            names,
        ),
        "Whisper, decoder": (_transformer("WhisperModel", heard, words | whisper, part="decoder"), heard),
        "U-Net, block with text": (_unet_block, block),
    }  # fmt: skip
    below = {"input_ids": 1000, "attention_mask": 2}
    return {
        f"{name} {exporter}": Case(
            f"{name} {exporter}", "transformers", make, inputs, {n: v for n, v in below.items() if n in inputs},
            opset=20 if exporter == "dynamo" else 17, dynamo=exporter == "dynamo",
        )
        for name, (make, inputs) in modules.items()
        for exporter in ("TorchScript", "dynamo")
    }  # fmt: skip


def _transformer(
    kind: str,
    inputs: Mapping[str, Shape],
    sizes: Mapping[str, Any],
    output: str = "last_hidden_state",
    part: str = "",
) -> Callable[[], Any]:
    return functools.partial(_named, kind, tuple(inputs), sizes, output, part)


def _torch() -> list[Case]:
    def recurrent(kind: str, **more: Any) -> Any:
        import torch

        return getattr(torch.nn, kind)(32, 64, batch_first=True, **more)

    def encoder() -> Any:
        import torch

        layer = torch.nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
        return torch.nn.TransformerEncoder(layer, 2)

    lstm = functools.partial(recurrent, "LSTM", num_layers=2, bidirectional=True)
    gru = functools.partial(recurrent, "GRU")
    steps = {"inputs": {"x": (1, 12, 32)}}
    return [
        Case("torch bidirectional LSTM", "torch", lstm, opset=14, **steps),
        Case("torch bidirectional LSTM dynamo", "torch", lstm, dynamo=True, opset=18, **steps),
        Case("torch GRU", "torch", gru, opset=11, **steps),
        Case("torch TransformerEncoder", "torch", encoder, inputs={"x": (1, 32, 64)}),
    ]


def _onnx() -> list[Case]:
    """The models of the onnx package's backend tests, whose constants are all one number."""
    names = ("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet",
             "vgg19", "zfnet512")  # fmt: skip

    def path(name: str) -> Callable[[], Any]:
        def make() -> Any:
            import onnx.backend.test

            return f"{onnx.backend.test.__path__[0]}/data/light/light_{name}.onnx"

        return make

    return [Case(f"onnx light_{n}", "onnx", path(n), inputs={}, opset=9) for n in names]


def _vision(path: str) -> Any:
    import torchvision

    found: Any = torchvision.models
    for part in path.split("."):
        found = getattr(found, part)
    none = {"weights_backbone": None} if path.startswith(("segmentation", "detection")) else {}
    return found(weights=None, **none)


def _pytorch_image_model(name: str) -> Any:
    import timm

    return timm.create_model(name, pretrained=False, exportable=True)


def _named(
    kind: str,
    names: tuple[str, ...],
    sizes: Mapping[str, Any],
    output: str = "last_hidden_state",
    part: str = "",
) -> Any:
    """A transformer, or a part of it, that takes tensors in the order of ``names`` and gives one output."""
    import torch
    import transformers

    architecture = getattr(transformers, kind)
    whole = architecture(architecture.config_class(**sizes))
    model = getattr(whole, part) if part else whole

    class One(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: Any) -> Any:
            return getattr(self.model(**dict(zip(names, tensors, strict=True))), output)

    return One()


def _unet_block() -> Any:
    """A block of Stable Diffusion's U-Net on its way down: a residual block, attention to itself and to a text."""
    import torch
    from diffusers.models.unets.unet_2d_blocks import CrossAttnDownBlock2D

    block = CrossAttnDownBlock2D(
        in_channels=128, out_channels=128, temb_channels=64, num_layers=1, resnet_groups=8, num_attention_heads=2,
        cross_attention_dim=96,
    )  # fmt: skip

    class One(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = block

        def forward(self, sample: Any, temb: Any, encoder_hidden_states: Any) -> Any:
            return self.block(sample, temb, encoder_hidden_states=encoder_hidden_states)[0]

    return One()

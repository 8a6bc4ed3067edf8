"""Writes the ONNX file of one case: ``python export.py NAME FILE``. Runs where torch is, which need not be rtlab's."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import warnings
from pathlib import Path

from catalogue import Case, cases, models_of_today


def export(case: Case, file: Path) -> None:
    if case.source == "onnx":
        shutil.copy(case.make(), file)
        return
    warnings.simplefilter("ignore")
    import torch

    _complete_torchvision()
    # The fast path of attention is one operator, which no exporter knows.
    torch.backends.mha.set_fastpath_enabled(False)
    torch.manual_seed(0)
    module = case.make().eval()
    kind = torch.float16 if case.half else torch.float32
    module = module.to(kind)
    # Sizes of one are taken for fixed ones by torch.export.
    more = {n for n, axes in case.free.items() if 0 in axes and case.dynamo}
    args = tuple(
        torch.randint(0, case.below[name], shape) if name in case.below else torch.randn(shape).to(kind)
        for name, shape in ((n, (2, *s[1:]) if n in more else s) for n, s in case.inputs.items())
    )
    names = {"input_names": list(case.inputs), "opset_version": case.opset}
    with torch.no_grad():
        if case.dynamo:
            free = tuple(dict.fromkeys(case.free.get(n, {}), torch.export.Dim.AUTO) for n in case.inputs)
            # A module of *tensors has one parameter, the tuple of all.
            shapes = None if not case.free else (free,) if case.source == "transformers" else free
            torch.onnx.export(
                module, args, file, dynamo=True, external_data=False, verbose=False, dynamic_shapes=shapes, **names,
            )  # fmt: skip
        else:
            free = {n: dict(axes) for n, axes in case.free.items()}
            torch.onnx.export(module, args, file, dynamo=False, dynamic_axes=free, **names)


def _complete_torchvision() -> None:
    """Declare the operators that torchvision's own library brings, where it is built for another torch."""
    import torch

    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        return
    try:
        torch.ops.load_library(str(next(Path(found.origin).parent.glob("_C*"))))
    except (OSError, StopIteration):
        library = torch.library.Library("torchvision", "DEF")
        _KEPT.append(library)
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.impl("nms", _suppressed, "CPU")
        import torchvision.extension

        # It asks before it calls them.
        torchvision.extension._has_ops = _there


#: A library lives as long as its object does.
_KEPT: list[object] = []


def _there() -> bool:
    return True


def _suppressed(boxes: object, scores: object, threshold: float) -> object:
    """Non-maximum suppression: a box goes where a better one covers more than ``threshold`` of their union."""
    import torch
    from torchvision.ops import box_iou

    order = scores.argsort(descending=True)  # type: ignore[attr-defined]
    kept = []
    while order.numel():
        kept.append(order[0])
        order = order[1:][box_iou(boxes[order[:1]], boxes[order[1:]])[0] <= threshold]  # type: ignore[index]
    return torch.stack(kept) if kept else torch.zeros(0, dtype=torch.long)


if __name__ == "__main__":
    export((cases() | models_of_today())[sys.argv[1]], Path(sys.argv[2]))

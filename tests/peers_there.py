"""What peers do to a model, in the interpreter that has them: ``python peers_there.py WHAT FOLDER SETTINGS``.

``peers.py`` starts it. The folder holds ``model.onnx``, ``fit.npz`` to calibrate on, ``chosen.npz`` to choose by and
``told.npz`` to tell scores of, with labels. Models are written beside them, and the last line printed is JSON. Nothing
of rtlab is imported here.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import re
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

CPU = ["CPUExecutionProvider"]
#: Pictures in each batch of a calibration.
BATCH = 32
#: Steps of AdaRound for each layer; the documentation recommends 10,000, which takes ten times as long.
STEPS = 1000
#: Bits of a weight on average, 16 where a layer is not quantized, that AutoQuantize is asked for until it suffices.
BITS = (8.1, 9.0, 10.0, 12.0, 14.0)


class Given:
    """A folder with a model and its data."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.folder, self.settings = folder, settings
        self.model = folder / "model.onnx"
        with np.load(folder / "fit.npz") as kept:
            self.fit = {k: kept[k] for k in kept.files}
        with np.load(folder / "chosen.npz") as kept:
            self.chosen = {k: kept[k] for k in kept.files if k != "labels"}
            self.labels = kept["labels"]
        with np.load(folder / "told.npz") as kept:
            self.told = {k: kept[k] for k in kept.files if k != "labels"}

    def batches(self, count: int | None = None) -> list[dict[str, np.ndarray]]:
        """Batches of the data to calibrate on."""
        total = min(count or 1 << 30, len(next(iter(self.fit.values()))))
        return [
            {k: a[i : min(i + BATCH, total)] for k, a in self.fit.items()} for i in range(0, total, BATCH)
        ]

    def right(self, session: Any) -> float:
        """The share of the samples to choose by that a session gets right."""
        found = session.run(None, self.chosen)[0].argmax(-1)
        return float((found == self.labels).mean())

    def predicted(self, run: Callable[[dict[str, np.ndarray]], np.ndarray]) -> list[int]:
        """What is answered to the samples that scores are told of."""
        answer: list[int] = run(self.told).argmax(-1).tolist()
        return answer


@contextlib.contextmanager
def clock(found: dict[str, Any]) -> Iterator[None]:
    """Add the seconds that the block takes."""
    began = time.perf_counter()
    yield
    found["seconds"] = found.get("seconds", 0.0) + time.perf_counter() - began


def versions(given: Given) -> dict[str, Any]:
    """The packages' versions; None where one is not installed."""
    names = ("nvidia-modelopt", "aimet-onnx", "onnxruntime", "onnx", "torch", "numpy")
    known = {
        d.metadata["Name"].lower().replace("_", "-"): d.version for d in importlib.metadata.distributions()
    }
    found = {name: known.get(name) for name in names}
    return {"versions": found, "python": sys.version.split()[0]}


def autocast(given: Given) -> dict[str, Any]:
    """ModelOpt's AutoCast to FP16, by the reference's values on one batch, or on its own random ones."""
    from modelopt.onnx.autocast import convert_to_mixed_precision

    found: dict[str, Any] = {}
    data = given.folder / "batch.npz"
    np.savez(data, **given.batches(BATCH)[0])
    with clock(found):
        model = convert_to_mixed_precision(
            str(given.model),
            "fp16",
            keep_io_types=True,
            calibration_data=str(data) if given.settings["data"] else None,
        )
    written = given.folder / f"autocast{'_data' * given.settings['data']}.onnx"
    onnx.save(model, written)
    return {**found, "model": written.name}


def ptq(given: Given) -> dict[str, Any]:
    """ModelOpt's quantization of ONNX, INT8, nothing else below FP32."""
    from modelopt.onnx.quantization import quantize

    found: dict[str, Any] = {}
    written = given.folder / f"ptq_{given.settings['method']}.onnx"
    with clock(found):
        quantize(
            str(given.model),
            quantize_mode="int8",
            calibration_method=given.settings["method"],
            calibration_data=given.fit,
            calibration_eps=["cpu"],
            high_precision_dtype="fp32",
            output_path=str(written),
            log_level="ERROR",
        )
    return {**found, "model": written.name}


def _simulated(given: Given, model: onnx.ModelProto, scheme: str = "min_max") -> Any:
    import aimet_onnx

    config = given.settings.get("config", "default_config_per_channel.json")
    where = Path(aimet_onnx.__file__).parent / "common" / "quantsim_config" / config
    return aimet_onnx.QuantizationSimModel(
        model,
        param_type="int8",
        activation_type="int8",
        quant_scheme=scheme,
        config_file=str(where),
        providers=CPU,
    )


def _told(sim: Any, path: Path) -> str:
    onnx.save(sim.to_onnx_qdq(), path)
    return path.name


def aimet(given: Given) -> dict[str, Any]:
    """AIMET's simulation, after nothing or one of its treatments, written with Q/DQ pairs."""
    from aimet_onnx.adaround.adaround_weight import Adaround
    from aimet_onnx.cross_layer_equalization import equalize_model
    from aimet_onnx.sequential_mse.seq_mse import apply_seq_mse

    found: dict[str, Any] = {}
    how, batches = given.settings["how"], given.batches()
    model = onnx.load(given.model)
    with clock(found):
        if how == "cle":
            equalize_model(model)
        sim = _simulated(given, model, "tf_enhanced" if how == "tf_enhanced" else "min_max")
        if how == "seqmse":
            apply_seq_mse(sim, batches)
        if how == "adaround":
            Adaround.apply_adaround(sim, batches, num_iterations=STEPS)
        sim.compute_encodings(batches)
    found["model"] = _told(sim, given.folder / f"aimet_{how}.onnx")
    return found


def amp(given: Given) -> dict[str, Any]:
    """AIMET's greedy mixed precision: 8 bits, or 16, until the score is within what may be lost."""
    import onnxruntime
    from aimet_onnx import float16, int8
    from aimet_onnx.mixed_precision import choose_mixed_precision

    plain = given.right(onnxruntime.InferenceSession(str(given.model), providers=CPU))
    runs = 0

    def score(session: Any) -> float:
        nonlocal runs
        runs += 1
        return given.right(session)

    found: dict[str, Any] = {}
    batches = given.batches()
    with clock(found):
        sim = _simulated(given, onnx.load(given.model))
        sim.compute_encodings(batches)
        folder = given.folder / "amp"
        folder.mkdir(exist_ok=True)
        choose_mixed_precision(
            sim,
            candidates=[((8, _kind(int8)), (8, _kind(int8))), ((16, _kind(float16)), (16, _kind(float16)))],
            eval_callback_for_phase1=_callback(score),
            eval_callback_for_phase2=_callback(score),
            allowed_accuracy_drop=given.settings["max_drop"] / 100,
            results_dir=str(folder),
            clean_start=True,
            forward_pass_callback=_callback(lambda session: [session.run(None, b) for b in batches]),
            use_all_amp_candidates=False,
        )
    high = [n for n, q in sim.qc_quantize_op_dict.items() if q.enabled and q.bitwidth > 8]
    of = sum(q.enabled for q in sim.qc_quantize_op_dict.values())
    predicted = given.predicted(lambda told: sim.session.run(None, told)[0])
    return {
        **found,
        "runs": runs,
        "high": high,
        "of": of,
        "predicted": predicted,
        "drop": 100 * (plain - given.right(sim.session)),
    }


def _kind(kind: Any) -> Any:
    from aimet_onnx.common.defs import QuantizationDataType

    return QuantizationDataType.float if "float" in str(kind) else QuantizationDataType.int


def _callback(function: Callable[[Any], Any]) -> Any:
    """What AIMET calls with a session and arguments of its own."""
    from aimet_onnx.common.defs import CallbackFunc

    return CallbackFunc(lambda session, _: function(session))


def sensitivity(given: Given) -> dict[str, Any]:
    """AIMET's score of each layer with its quantizers alone, the SQNR of the outputs in dB; on other samples too."""
    import onnxruntime
    from aimet_onnx.quant_analyzer import analyze_per_layer_sensitivity

    plain = onnxruntime.InferenceSession(str(given.model), _threads(), providers=CPU)
    count = given.settings["samples"]

    def ranked(probe: list[dict[str, np.ndarray]]) -> dict[str, float]:
        reference = [plain.run(None, b)[0] for b in probe]

        def sqnr(tried: Any) -> float:
            wrong, right = 0.0, 0.0
            for batch, z in zip(probe, reference, strict=True):
                wrong += float(np.square(tried.run(None, batch)[0].astype(np.float64) - z).sum())
                right += float(np.square(z.astype(np.float64)).sum())
            return 10 * float(np.log10(right / max(wrong, 1e-30)))

        return {k: -float(v) for k, v in analyze_per_layer_sensitivity(sim, sqnr).items()}

    sim = _simulated(given, onnx.load(given.model))
    sim.compute_encodings(given.batches())
    found: dict[str, Any] = {}
    with clock(found):
        ranking = ranked(given.batches(count))
    return {
        **found, "plain": _plain(plain, given.batches(count)), "samples": count, "ranking": ranking,
        "others": ranked([given.told]) if given.told else None,
    }  # fmt: skip


def _plain(session: Any, batches: list[dict[str, np.ndarray]]) -> float:
    """The least seconds of five runs over batches."""
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        for batch in batches:
            session.run(None, batch)
        taken.append(time.perf_counter() - began)
    return min(taken)


def _threads() -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return options


def debugger(given: Given) -> dict[str, Any]:
    """ONNX Runtime's static quantization and its debugger: the error of each activation, arrived and own, in dB."""
    import onnxruntime
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.calibrate import CalibrationDataReader
    from onnxruntime.quantization.qdq_loss_debug import (
        collect_activations,
        compute_activation_error,
        create_activation_matching,
        modify_model_output_intermediate_tensors,
    )

    class Reader(CalibrationDataReader):
        def __init__(self, batches: list[dict[str, np.ndarray]]) -> None:
            self.left = iter(batches)

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.left, None)

    folder, probe = given.folder, given.batches(given.settings["samples"])
    quantized = folder / "ort_int8.onnx"
    quantize_static(
        str(given.model),
        str(quantized),
        Reader(given.batches()),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
        calibrate_method=CalibrationMethod.MinMax,
        extra_options={"ActivationSymmetric": True, "WeightSymmetric": True},
    )
    session = onnxruntime.InferenceSession(str(given.model), _threads(), providers=CPU)
    found: dict[str, Any] = {}
    with clock(found):
        held = []
        for path in (given.model, quantized):
            wide = folder / f"{path.stem}_wide.onnx"
            modify_model_output_intermediate_tensors(str(path), str(wide))
            held.append(collect_activations(str(wide), Reader(probe)))
        errors = compute_activation_error(create_activation_matching(held[1], held[0]))
    makers = {o: n.name for n in onnx.load(given.model).graph.node for o in n.output}
    arrived, own = {}, {}
    for value, error in errors.items():
        if value in makers:
            arrived[makers[value]] = -float(error["xmodel_err"])
            own[makers[value]] = -float(error["qdq_err"])
    return {
        **found, "plain": _plain(session, probe), "samples": given.settings["samples"], "arrived": arrived, "own": own,
        "model": quantized.name,
    }  # fmt: skip


def twin(given: Given) -> dict[str, Any]:
    """ModelOpt's AutoQuantize on the PyTorch class that a sample was written from, its weights read from the file.

    It is told how many bits a weight may have on average, and not what may be lost: more are tried until it suffices.
    """
    import modelopt.torch.quantization as mtq
    import onnxruntime
    import torch
    from torch.nn import functional

    images = torch.as_tensor(given.chosen["image"])
    labels = torch.as_tensor(given.labels.astype(np.int64))
    loader = [(images[i : i + BATCH], labels[i : i + BATCH]) for i in range(0, len(images), BATCH)]

    def right(net: Any) -> float:
        return float((net(images).argmax(-1) == labels).float().mean())

    found: dict[str, Any] = {}
    runs = 0
    for bits in BITS:
        runs += 1
        net = _net(given)
        net.load_state_dict(_state(given.model, net), strict=False)
        net.eval()
        with torch.no_grad():
            written = onnxruntime.InferenceSession(str(given.model), providers=CPU).run(None, given.chosen)[0]
            assert np.allclose(net(images).numpy(), written, rtol=1e-2, atol=1e-2), (
                "the twin computes something else"
            )
            plain = right(net)
        with clock(found):
            net, _ = mtq.auto_quantize(
                net,
                constraints={"effective_bits": bits},
                quantization_formats=[mtq.INT8_DEFAULT_CFG],
                data_loader=loader,
                forward_step=lambda model, batch: model(batch[0]),
                loss_func=lambda output, batch: functional.cross_entropy(output, batch[1]),
                num_calib_steps=len(loader),
                num_score_steps=len(loader),
            )
            with torch.no_grad():
                reached = right(net)
        if plain - reached <= given.settings["max_drop"] / 100:
            break
    weighed = [n for n, m in net.named_modules() if getattr(m, "weight_quantizer", None) is not None]
    quantized = {n for n, m in net.named_modules() if _quantizes(m)}
    with torch.no_grad():
        predicted = given.predicted(lambda told: net(torch.as_tensor(told["image"])).numpy())
    return {
        **found, "predicted": predicted, "high": [n for n in weighed if n not in quantized], "of": len(weighed),
        "runs": runs, "bits": bits,
    }  # fmt: skip


def _quantizes(module: Any) -> bool:
    quantizer = getattr(module, "weight_quantizer", None)
    return quantizer is not None and bool(getattr(quantizer, "is_enabled", False))


def _net(given: Given) -> Any:
    """The class of a training script; what the scripts share for training is left out, for it needs rtlab."""
    script = Path(given.settings["script"])
    shared = types.ModuleType("digits_common")
    shared.__getattr__ = lambda name: type(name, (), {})  # type: ignore[method-assign]
    sys.modules["digits_common"] = shared
    spec = importlib.util.spec_from_file_location("script", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["script"] = module
    spec.loader.exec_module(module)
    return getattr(module, given.settings["net"])()


def _state(path: Path, net: Any) -> dict[str, Any]:
    import torch

    known = {i.name: onnx.numpy_helper.to_array(i) for i in onnx.load(path).graph.initializer}
    known |= {k.removesuffix("_t"): a.T for k, a in known.items() if k.endswith(".weight_t")}  # of a MatMul
    state = {
        k: torch.as_tensor(known[k].copy()).reshape(v.shape)
        for k, v in net.state_dict().items()
        if k in known
    }
    missing = [k for k in net.state_dict() if k not in known and not re.search("num_batches", k)]
    assert not missing, f"the file has no {missing}"
    return state


WHAT: dict[str, Callable[[Given], dict[str, Any]]] = {
    f.__name__: f for f in (versions, autocast, ptq, aimet, amp, sensitivity, debugger, twin)
}


def main() -> None:
    """Do what is asked for, and print what came of it."""
    what, folder, settings = sys.argv[1:]
    told = json.dumps(WHAT[what](Given(Path(folder), json.loads(settings))))
    sys.stdout.write(f"\n{told}\n")


if __name__ == "__main__":
    main()

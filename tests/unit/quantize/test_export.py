"""Taking a variant to another machine."""

from __future__ import annotations

import argparse
import json
import shlex

import onnx
import pytest

import rtlab
import rtlab.testing
from rtlab.core.scale import Scale
from rtlab.core.variant import Variant
from rtlab.errors import VariantError
from rtlab.quantize import prepare, quantizable
from rtlab.quantize.cache import CalibrationCache
from rtlab.quantize.export import build_calibration_cache, build_commands, export


@pytest.fixture
def source(tmp_path):
    """A model that was read from a file."""
    path = tmp_path / "net.onnx"
    path.write_bytes(rtlab.testing.tiny_model().bytes())
    return rtlab.load(path)


@pytest.fixture
def int8(source):
    """The model in INT8 with scales of powers of two."""
    variant = Variant.of("int8", calibrator="minmax", target="sm86")
    given = {v: Scale(127 * 2.0**-k) for k, v in enumerate(quantizable(source))}
    return variant, prepare(source, Variant.of("int8", scales="given"), scales=given)


def test_what_is_written_is_the_prepared_model_its_scales_and_a_cache(source, int8, tmp_path):
    done = export(source, *int8, tmp_path / "out.onnx", cache=tmp_path / "out.cache")

    onnx.checker.check_model(onnx.load(done.model), full_check=True)
    told = json.loads(done.scales.read_text(encoding="utf-8"))["scales"]
    assert {v: s.scale for v, s in int8[1].scales.items()} == {v: s["scale"] for v, s in told.items()}
    cache = CalibrationCache.read(done.cache).scales()
    assert {v: s.scale for v, s in int8[1].scales.items()} == {v: s.scale for v, s in cache.items()}
    assert done.cache.read_text(encoding="utf-8").startswith("TRT-101601-MinMaxCalibration\n")


def test_commands_say_what_the_variant_asked_for(source):
    """A flag that is forgotten builds another engine: TF32 is on by default, sparsity is off."""
    plain = build_commands(source, Variant.of("fp32", target="sm86"), "a b.onnx")
    special = build_commands(source, Variant.of("tf32", target="sm86", sparsity=True), "m.onnx")

    assert ["trtexec", "polygraphy"] == [shlex.split(line)[0] for line in plain]
    assert {"--onnx=a b.onnx", "--stronglyTyped", "--noTF32"} <= set(shlex.split(plain[0]))
    assert "--tf32" not in shlex.split(plain[1])
    assert "--noTF32" not in shlex.split(special[0])
    assert "--sparsity=enable" in shlex.split(special[0])
    assert {"--tf32", "--sparse-weights"} <= set(shlex.split(special[1]))


def test_polygraphy_takes_the_command(source):
    from polygraphy.tools.convert import Convert

    line = build_commands(source, Variant.of("tf32", target="sm86", sparsity=True), "m.onnx")[1]
    parser = argparse.ArgumentParser()
    tool = Convert()
    tool.setup_parser(parser.add_subparsers())
    read = parser.parse_args(shlex.split(line)[1:])

    assert "m.onnx" == read.model_file
    assert read.strongly_typed
    assert read.sparse_weights


def test_only_int8_has_a_cache(source):
    variant = Variant.of("fp16", target="sm86")

    with pytest.raises(VariantError, match='cache of variant "fp16"'):
        build_calibration_cache(variant, prepare(source, variant))

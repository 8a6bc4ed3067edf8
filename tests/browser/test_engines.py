"""Engines from files in a real JupyterLab: the tabs Engine, Build and Findings, files chosen and dropped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import engines
from explorer import EXPLORER, Explorer

pytestmark = pytest.mark.slow

STRUCTURE = f"""import rtlab
folder = {str(engines.MOBILE)!r}
model = rtlab.load(f"{{folder}}/model.structure-only.onnx", name="mobile", weights=False)
study = rtlab.read(f"{{folder}}/engine.graph.json", f"{{folder}}/engine.profile.json", f"{{folder}}/engine.timing.json",
                   f"{{folder}}/engine.profile.metadata.json", model=model)
explorer = study.explore()
explorer"""

TINY = """import rtlab
study = rtlab.Study(rtlab.testing.tiny_model())
study.add("fp32", target="cpu")
study.run(compare=False)
explorer = study.explore()
explorer"""


def choose_files(shown: Explorer, *files: Path) -> None:
    """By the file dialog behind the list of models."""
    shown.page.click(f'{EXPLORER} [data-control="model"]')
    with shown.page.expect_file_chooser() as dialog:
        shown.page.click(f'{EXPLORER} [data-control="files"]')
    dialog.value.set_files([str(f) for f in files])


def test_where_the_time_of_an_engine_goes(opened) -> None:
    shown = opened(STRUCTURE)
    page, lab = shown.page, shown.lab
    page.click(f'{EXPLORER} [data-tab="engine"]')
    kinds = lab.python("[(s.name, list(s.layers)) for s in study['engine'].kinds()]")
    for name, layers in kinds[:2]:
        page.click(f'{EXPLORER} [data-kind="{name}"]')
        lab.wait_python(f"set(explorer.state.layers) == {set(layers)!r}")
    step = lab.python("[(t.before, t.after, list(t.layers)) for t in study['engine'].transitions()]")[0]
    page.click(f'{EXPLORER} [data-cell="{step[0]} {step[1]}"]')
    lab.wait_python(f"set(explorer.state.layers) == {set(step[2])!r}")

    # A reformat tells its cause, and selects its layer.
    first = lab.python("study['engine'].reformats()[0].layer")
    row = f"{EXPLORER} [data-reformat={json.dumps(first)}]"
    page.locator(row).scroll_into_view_if_needed()
    page.click(row)
    lab.wait_python(f"{first!r} in explorer.state.layers")

    # Findings: the most costly first, each with its evidence, and layers that light up.
    page.click(f'{EXPLORER} [data-tab="findings"]')
    found = lab.python("[(f.id, f.title, list(f.layers)) for f in study['engine'].findings]")
    page.wait_for_selector(f"{EXPLORER} [data-finding={json.dumps(found[0][0])}]")
    assert len(found) == page.locator(f"{EXPLORER} [data-finding]").count()


def test_a_build_of_a_log_is_replayed_on_the_graph(opened, tmp_path) -> None:
    shown = opened(f"""import rtlab
study = rtlab.read(log={str(engines.googlenet_log(tmp_path))!r}, model=rtlab.samples.load("googlenet").model)
explorer = study.explore()
explorer.arrange(tab="build")""")
    page, lab = shown.page, shown.lab
    text = page.inner_text(f"{EXPLORER} .rt-bottom")
    for count in ("141", "84", "66"):
        assert count in text
    page.click(f'{EXPLORER} [data-control="replay"]')
    lab.wait_python("explorer.state.grouping_nodes == 'replay'")
    slider = page.locator(f'{EXPLORER} [data-control="step"]')
    slider.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    lab.wait_python("explorer.state.step == 1")
    lab.wait_python("set(explorer.state.selection) == {'conv1/7x7_s2', 'conv1/relu_7x7'}")
    page.keyboard.press("End")
    last = lab.python(
        "len(__import__('rtlab.documents.serialization').documents.serialization.decode(explorer.build_answer)['steps'])"
    )
    lab.wait_python(f"explorer.state.step == {last}")
    shown.ready()


def test_files_chosen_or_dropped_together_become_one_engine(opened) -> None:
    shown = opened(TINY)
    page, lab = shown.page, shown.lab
    files = [engines.RESIDUAL / f"engine.{kind}.json" for kind in ("graph", "profile", "timing")]
    choose_files(shown, *files)
    lab.wait_python("len(study) == 2 and not explorer.build['running']")
    assert lab.python("explorer.failure is None")
    rows = json.loads(files[1].read_text(encoding="utf-8"))[1:]
    name = lab.python("explorer.state.variant")
    assert len(rows) == lab.python(f"len(study[{name!r}].timing.layers)")

    choose_files(shown, files[0], engines.MOBILE / "engine.profile.json")
    lab.wait_python("explorer.failure is not None and not explorer.build['running']")
    assert "ReadError" == lab.python("explorer.failure['kind']")
    page.wait_for_selector(f'{EXPLORER} [data-control="failure"]')
    assert 2 == lab.python("len(study)")
    page.click(f'{EXPLORER} [data-control="dismiss"]')

    # The same from the file manager, dropped anywhere on the Explorer.
    page.evaluate(
        """files => {
          const data = new DataTransfer();
          for (const [name, text] of Object.entries(files)) data.items.add(new File([text], name));
          const target = document.querySelector('.rt-explorer canvas');
          for (const type of ['dragenter', 'dragover', 'drop'])
            target.dispatchEvent(new DragEvent(type, {bubbles: true, cancelable: true, dataTransfer: data}));
        }""",
        {p.name: p.read_text(encoding="utf-8") for p in files[:2]},
    )
    lab.wait_python("len(study) == 3 and not explorer.build['running'] or explorer.failure is not None")
    assert lab.python("explorer.failure") is None
    assert lab.python("study[explorer.state.variant].recorded")

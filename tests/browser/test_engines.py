"""Engines from files in a real JupyterLab: the tabs Engine, Build and Findings, files chosen and dropped."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import engines
import rtlab
from explorer import EXPLORER, Explorer

pytestmark = pytest.mark.slow

CORPUS = Path(__file__).parents[1] / "corpus"

STRUCTURE = f"""import rtlab
folder = {str(engines.MOBILE)!r}
model = rtlab.load(f"{{folder}}/model.structure-only.onnx", name="mobile", weights=False)
study = rtlab.read(f"{{folder}}/engine.graph.json", f"{{folder}}/engine.profile.json", f"{{folder}}/engine.timing.json",
                   f"{{folder}}/engine.profile.metadata.json", model=model)
explorer = study.explore()
explorer"""

PREDICTED = """import rtlab
study = rtlab.Study(rtlab.samples.load("digits_inception").model)
study.add("classic", precision="fp32", backend="classic")
study.run(compare=False, budget_s=0)
explorer = study.explore()
explorer.arrange(tab="build")"""

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


def tab(shown: Explorer, name: str) -> None:
    shown.page.click(f'{EXPLORER} [data-tab="{name}"]')


def test_where_the_time_of_an_engine_goes(opened) -> None:
    """Kinds, precisions and transitions of an engine; a click on one selects its layers everywhere."""
    shown = opened(STRUCTURE)
    page, lab = shown.page, shown.lab
    tab(shown, "engine")
    kinds = lab.python("[(s.name, list(s.layers)) for s in study['engine'].kinds()]")
    for name, layers in kinds[:2]:
        page.click(f'{EXPLORER} [data-kind="{name}"]')
        lab.wait_python(f"set(explorer.state.layers) == {set(layers)!r}")
    # What has no room in the line at the bottom is told on demand.
    page.click(f'{EXPLORER} [data-control="more-known"] summary')
    text = page.inner_text(EXPLORER)
    # What the mapping explains is a number, and so is what the sum of the layers overstates.
    known = lab.python("study['engine'].coverage.nodes")
    assert re.search(rf"\b{known}\b", text)
    ratio = lab.python("study['engine'].timing.ratio")
    assert f"{round(100 * ratio)} % of the latency" in text
    assert "Invented GPU" in text
    step = lab.python("[(t.before, t.after, list(t.layers)) for t in study['engine'].transitions()]")[0]
    page.click(f'{EXPLORER} [data-cell="{step[0]} {step[1]}"]')
    lab.wait_python(f"set(explorer.state.layers) == {set(step[2])!r}")
    shown.picture("engine-light")
    lab.theme(dark=True)
    shown.picture("engine-dark")
    lab.theme(dark=False)

    # A reformat tells its cause, and selects its layer.
    first = lab.python("study['engine'].reformats()[0].layer")
    row = f"{EXPLORER} [data-reformat={json.dumps(first)}]"
    page.locator(row).scroll_into_view_if_needed()
    page.click(row)
    lab.wait_python(f"{first!r} in explorer.state.layers")

    # Findings: the most costly first, each with its evidence, and layers that light up.
    tab(shown, "findings")
    found = lab.python("[(f.id, f.title, list(f.layers)) for f in study['engine'].findings]")
    page.wait_for_selector(f"{EXPLORER} [data-finding={json.dumps(found[0][0])}]")
    assert len(found) == page.locator(f"{EXPLORER} [data-finding]").count()
    shown.picture("findings-engine")


def test_a_build_of_a_log_is_replayed_on_the_graph(opened, tmp_path) -> None:
    """GoogLeNet: 141, 84, 66 layers; each decision lights up the nodes that it joined."""
    shown = opened(f"""import rtlab
study = rtlab.read(log={str(engines.googlenet_log(tmp_path))!r}, model=rtlab.samples.load("googlenet").model)
explorer = study.explore()
explorer.arrange(tab="build")""")
    page, lab = shown.page, shown.lab
    text = page.inner_text(f"{EXPLORER} .rt-bottom")
    for count in ("141", "84", "66"):
        assert count in text
    shown.picture("build-start")
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
        "len(__import__('rtlab.documents.payload').documents.payload.decode(explorer.build_answer)['steps'])"
    )
    lab.wait_python(f"explorer.state.step == {last}")
    shown.ready()
    shown.picture("build-end")
    lab.theme(dark=True)
    shown.picture("build-dark")
    lab.theme(dark=False)


def test_a_predicted_build_is_replayed_and_marked(opened) -> None:
    """The passes step over the graph as those of a log do, and the chip says that no compiler made the layers."""
    shown = opened(PREDICTED)
    page = shown.page
    chip = page.locator(f'{EXPLORER} [data-chip="classic"]')
    chip.wait_for()
    assert "◌ predicted" in chip.inner_text()
    story = page.locator(f"{EXPLORER} .rt-story")
    story.wait_for()
    assert "43 → 32 → 19 → 15" in story.inner_text()
    assert "◌ Layers" in story.inner_text()
    assert "reported" not in (story.locator("h4").first.get_attribute("title") or "")


def test_of_a_large_engine_the_numbers_follow_the_picture(opened, tmp_path) -> None:
    """Boxes, links and layout stay as they are while tensors, times, colours and findings arrive."""
    engines.write(tmp_path, 1_200)
    shown = opened(f"""import sys
import rtlab
sys.path.insert(0, {str(Path(engines.__file__).parent)!r})
import engines
from pathlib import Path
folder = Path({str(tmp_path)!r})
study = rtlab.read(layers=folder / "layers.json", profile=folder / "profile.json", model=engines.model(folder))
explorer = study.explore()
explorer""")
    page, lab = shown.page, shown.lab
    lab.wait_python("not explorer.build['running']")
    shown.ready()
    layer = lab.python("study['engine'].engine.layers[7].id")
    shown.click("layer", layer)
    page.wait_for_selector(f"{EXPLORER} .rt-panel h3")
    told = page.inner_text(f"{EXPLORER} .rt-panel")
    tensor = lab.python("study['engine'].engine.layers[7].outputs[0].name")
    assert tensor in re.sub(r"\s", "", told)
    assert "on their way" not in told
    assert "GPU time" in told
    assert "time" == page.get_attribute(f'{EXPLORER} [data-control="colour-layer"]', "data-value")
    nodes = lab.python(f"list(study['engine'].mapping.nodes({layer!r}))")
    assert nodes == lab.python("list(explorer.state.selection)")
    assert "explained" in page.inner_text(f"{EXPLORER} .rt-bottom")
    shown.picture("large-engine")


def test_files_chosen_or_dropped_together_become_one_engine(opened) -> None:
    """Three files in one go; those of two engines are a card that names what does not match."""
    shown = opened(TINY)
    page, lab = shown.page, shown.lab
    files = [engines.RESIDUAL / f"engine.{kind}.json" for kind in ("graph", "profile", "timing")]
    choose_files(shown, *files)
    lab.wait_python("len(study.results) == 2 and not explorer.build['running']")
    assert lab.python("explorer.failure is None")
    rows = json.loads(files[1].read_text(encoding="utf-8"))[1:]
    name = lab.python("explorer.state.variant")
    assert len(rows) == lab.python(f"len(study[{name!r}].timing.layers)")
    shown.picture("dropped-engine")

    choose_files(shown, files[0], engines.MOBILE / "engine.profile.json")
    lab.wait_python("explorer.failure is not None and not explorer.build['running']")
    assert "ReadError" == lab.python("explorer.failure['kind']")
    page.wait_for_selector(f'{EXPLORER} [data-control="failure"]')
    shown.picture("dropped-two-engines")
    assert 2 == lab.python("len(study.results)")
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
    lab.wait_python(
        "len(study.results) == 3 and not explorer.build['running'] or explorer.failure is not None"
    )
    assert lab.python("explorer.failure") is None
    assert lab.python("study[explorer.state.variant].recorded")


def test_a_text_that_is_pasted_into_the_explorer_is_read(opened) -> None:
    """A table of times as people quote it, pasted by the keyboard."""
    shown = opened(TINY)
    page, lab = shown.page, shown.lab
    table = (CORPUS / "pasted" / "profile-table.log").read_text(encoding="utf-8")
    quoted = "".join(f"> {line}\n" for line in table.splitlines())
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.evaluate("text => navigator.clipboard.writeText(text)", quoted)
    page.locator(f"{EXPLORER} canvas").first.click(position={"x": 5, "y": 5})
    page.keyboard.press("Control+V")
    lab.wait_python("len(study.results) == 2 and not explorer.build['running']")
    assert lab.python("explorer.failure") is None
    assert [20.0, 49.0, 10.0, 21.0] == lab.python(
        "[round(t.median * 1e3, 6) for t in study[explorer.state.variant].timing.layers]"
    )
    assert lab.python("study[explorer.state.variant].recorded")
    shown.picture("pasted-table")

    # The same text dragged from another window; dragged from the page itself it is nobody's file.
    drag = """([text, own]) => {
      const data = new DataTransfer();
      data.setData('text/plain', text);
      const target = document.querySelector('.rt-explorer canvas');
      for (const type of own ? ['dragstart', 'dragover', 'drop', 'dragend'] : ['dragenter', 'dragover', 'drop'])
        target.dispatchEvent(new DragEvent(type, {bubbles: true, cancelable: true, dataTransfer: data}));
    }"""
    page.evaluate(drag, [quoted, True])
    page.evaluate(drag, [quoted, False])
    lab.wait_python("len(study.results) == 3 and not explorer.build['running']")
    assert lab.python("explorer.failure") is None


def test_an_engine_without_its_model_is_shown_alone(opened) -> None:
    """No empty pane, and a reason where nothing can be chosen."""
    layers = str(engines.RESIDUAL / "engine.graph.json")
    shown = opened(f"import rtlab\nstudy = rtlab.read({layers!r})\nexplorer = study.explore()\nexplorer")
    assert ["layer"] == shown.lab.python("list(explorer.state.panes)")
    build = shown.page.locator(f'{EXPLORER} [data-control="build"]')
    assert build.is_disabled()
    shown.picture("engine-alone")


def test_a_report_tells_an_engine_its_build_and_its_findings(chromium, tmp_path) -> None:
    """One file, for somebody without a kernel: kinds, decisions to step through, what is wrong."""
    study = rtlab.read(log=engines.googlenet_log(tmp_path), model=rtlab.samples.load("googlenet").model)
    study.to_html(tmp_path / "googlenet.html")
    page = chromium.new_page(viewport={"width": 1280, "height": 860})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((tmp_path / "googlenet.html").as_uri())
    page.wait_for_selector(f'{EXPLORER}[data-ready="1"]')
    page.click(f'{EXPLORER} [data-tab="build"]')
    assert "141 → 84 → 66" in page.inner_text(f"{EXPLORER} .rt-bottom")
    page.check(f'{EXPLORER} [data-control="replay"]')
    page.click(f'{EXPLORER} [data-control="next"]')
    page.wait_for_function(
        "() => document.querySelector('.rt-explorer').dataset.selection === JSON.stringify("
        "['conv1/7x7_s2', 'conv1/relu_7x7'])"
    )
    # The whole of what the builder said, where a row has no room for it.
    said = page.inner_text(f'{EXPLORER} [data-control="decision"]')
    assert "Fusing conv1/7x7_s2 with conv1/relu_7x7" in said
    page.click(f'{EXPLORER} [data-tab="engine"]')
    for kind in study["engine"].kinds():
        assert page.locator(f'{EXPLORER} [data-kind="{kind.name}"]').is_visible()
    page.click(f'{EXPLORER} [data-tab="findings"]')
    assert len(study["engine"].findings) == page.locator(f"{EXPLORER} [data-finding]").count()
    assert [] == errors
    page.close()

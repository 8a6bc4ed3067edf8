import type { Bench } from "../bench";
import type { Side } from "../contract";
import { calm } from "../draw/camera";
import type { Scene } from "../draw/scene";
import type { Stage } from "../draw/stage";
import type { KeyHandler } from "../keys";
import { activeMode, colourModes } from "../overlay";

/** Keys of a graph pane. The arrows move the hover along edges; Enter turns it into the selection. */
export function paneKeys(
  bench: Bench,
  side: Side,
  scene: () => Scene | null,
  stage: Stage,
  onSearch: () => void,
): KeyHandler {
  const { study } = bench;
  const here = (shown: Scene): number => {
    const at = study.hover.peek();
    const id = at?.side === side ? at.id : study.selected(side)[0];
    return shown.index.get(id ?? "") ?? -1;
  };
  const go = (shown: Scene, box: number): void => {
    study.hover.value = { side, id: shown.figures[box]!.box.id };
    stage.reveal([box], !calm());
  };
  return (event) => {
    const shown = scene();
    const ARROWS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
    const arrow = ARROWS[event.key as keyof typeof ARROWS];
    if (arrow && shown) {
      const from = here(shown);
      const next = from < 0 ? 0 : step(shown, from, arrow[0]!, arrow[1]!);
      if (next >= 0) go(shown, next);
      return true;
    }
    if (event.key === "Tab") {
      const other: Side = side === "node" ? "layer" : "node";
      if ((other === "layer") === event.shiftKey || !bench.stages[other]) return false;
      bench.root.querySelector<HTMLElement>(`canvas[data-pane="${other}"]`)?.focus();
      return true;
    }
    switch (event.key) {
      case "Enter": {
        const at = shown ? here(shown) : -1;
        if (at >= 0) study.select(side, shown!.figures[at]!.box.id, { add: event.shiftKey });
        return true;
      }
      case "Escape":
        study.hover.value = null;
        study.clear();
        return true;
      case "/":
        onSearch();
        return true;
      case "f":
        stage.fit();
        return true;
      case "+":
      case "=":
        stage.camera.zoomAt(stage.camera.width / 2, stage.camera.height / 2, 1.25);
        return true;
      case "-":
        stage.camera.zoomAt(stage.camera.width / 2, stage.camera.height / 2, 0.8);
        return true;
      case "c":
        cycle(bench, side);
        return true;
      default:
        return false;
    }
  };
}

/** The next way to colour this side. */
function cycle({ study }: Bench, side: Side): void {
  const engine = study.engine.peek();
  const modes = colourModes(side, engine);
  const field = side === "node" ? "colour_nodes" : "colour";
  const now = modes.findIndex(({ id }) => id === activeMode(side, study.view.peek()[field], engine));
  study.change({ [field]: modes[(now + 1) % modes.length]!.id });
}

/** Up and down along edges to the nearest neighbour; left and right to the nearest box beside it. */
function step(scene: Scene, from: number, dx: number, dy: number): number {
  const x = scene.x[from]!;
  const y = scene.y[from]!;
  let candidates: number[];
  if (dy) {
    const wires = dy > 0 ? scene.outOf[from]! : scene.into[from]!;
    candidates = wires.map((e) => (dy > 0 ? scene.wires[e]!.target : scene.wires[e]!.source));
  } else {
    const reach = scene.figures[from]!.height;
    candidates = scene.figures.flatMap((_, i) =>
      i !== from && Math.abs(scene.y[i]! - y) <= reach && Math.sign(scene.x[i]! - x) === dx ? [i] : [],
    );
  }
  const distance = (i: number): number => Math.hypot(scene.x[i]! - x, scene.y[i]! - y);
  return candidates.reduce((best, i) => (best < 0 || distance(i) < distance(best) ? i : best), -1);
}

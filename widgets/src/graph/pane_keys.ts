import type { Side } from "../core/contract";
import type { KeyHandler } from "../core/keys";
import { calm } from "./draw/camera";
import type { Scene } from "./draw/scene";
import type { Stage } from "./draw/stage";
import { toggleAt } from "./folding";
import { trace, type Way } from "./highlight";
import { colourField } from "./overlay";
import type { PaneSet } from "./paneset";

const ARROWS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] } as const;
const WAYS: Record<string, Way> = { u: "up", d: "down", p: "path" };

/** Keys of a graph pane. The arrows move the hover along edges; Enter turns it into the selection. */
export function paneKeys(
  paneSet: PaneSet,
  side: Side,
  scene: () => Scene | null,
  stage: Stage,
  onSearch: () => void,
  onHit: (by: number) => void,
): KeyHandler {
  const { study } = paneSet;
  const pointed = (): string | undefined => {
    const at = study.hover.peek();
    return at?.side === side ? at.id : undefined;
  };
  const here = (scene: Scene): number => scene.index.get(pointed() ?? study.selected(side)[0] ?? "") ?? -1;
  const go = (shown: Scene, box: number): void => {
    study.hover.value = paneSet.reading.value = { side, id: shown.figures[box]!.box.id };
    stage.reveal([box], !calm(), true);
  };
  const actions: Record<string, (shown: Scene, event: KeyboardEvent) => void> = {
    Enter(shown, { shiftKey: add }) {
      const at = here(shown);
      if (at >= 0) study.select(side, shown.figures[at]!.box.id, { add });
    },
    "/": onSearch,
    n: () => onHit(1),
    N: () => onHit(-1),
    f: () => stage.fit(),
    z: () => paneSet.zoomToSelection(side),
    o(shown) {
      const at = here(shown);
      const group = at < 0 ? null : toggleAt(study, side, shown.figures[at]!.box.id);
      if (group) study.hover.value = paneSet.reading.value = { side, id: group };
    },
    "+": () => stage.zoom(1.25),
    "=": () => stage.zoom(1.25),
    "-": () => stage.zoom(0.8),
    c: () => cycle(paneSet, side),
    s: () => paneSet.swap(side),
  };
  return (event) => {
    const { key } = event;
    const current = scene();
    if (key === "Tab") {
      const next = paneSet.sides.peek()[paneSet.sides.peek().indexOf(side) + (event.shiftKey ? -1 : 1)];
      if (next) paneSet.focusPane(next);
      return next !== undefined;
    }
    if (!current) return false;
    const arrow = ARROWS[key as keyof typeof ARROWS];
    const way = WAYS[key];
    if (arrow) {
      const from = here(current);
      const next = from < 0 ? 0 : step(current, from, arrow[0], arrow[1]);
      if (next >= 0) go(current, next);
    } else if (way) {
      const at = pointed();
      // The path is between what is selected; the others start where the reader is.
      const ids = way === "path" || !at ? study.selected(side) : study.members(side, at);
      trace(paneSet, side, ids, way);
    } else if (actions[key]) actions[key](current, event);
    else return false;
    return true;
  };
}

function cycle({ study, colours }: PaneSet, side: Side): void {
  const { modes, mode } = colours[side];
  const now = modes.value.findIndex(({ id }) => id === mode.value);
  study.change({ [colourField(side)]: modes.value[(now + 1) % modes.value.length]!.id });
}

/** With the flow along edges to the nearest neighbour; crosswise to the nearest box beside it. */
function step(scene: Scene, from: number, dx: number, dy: number): number {
  const { across } = scene;
  const along = across ? dx : dy;
  const place = (i: number): [number, number] => [scene.x[i]!, scene.y[i]!];
  const [x, y] = place(from);
  let candidates: number[];
  if (along) {
    const wires = along > 0 ? scene.outOf[from]! : scene.into[from]!;
    candidates = wires.map((e) => (along > 0 ? scene.wires[e]!.target : scene.wires[e]!.source));
  } else {
    const reach = across ? scene.width[from]! : scene.height[from]!;
    candidates = scene.figures.flatMap((_, i) => {
      const [ox, oy] = place(i);
      const [off, ahead] = across ? [ox - x, (oy - y) * dy] : [oy - y, (ox - x) * dx];
      return i !== from && Math.abs(off) <= reach && ahead > 0 ? [i] : [];
    });
  }
  const distance = (i: number): number => Math.hypot(scene.x[i]! - x, scene.y[i]! - y);
  return candidates.reduce((best, i) => (best < 0 || distance(i) < distance(best) ? i : best), -1);
}

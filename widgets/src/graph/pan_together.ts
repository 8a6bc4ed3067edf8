import type { Side } from "../core/contract";
import { LinkedPan } from "./draw/linked_pan";
import type { Scene } from "./draw/scene";
import type { PaneSet } from "./paneset";

interface Known {
  from: Scene;
  to: Scene;
  map: LinkedPan;
}

const maps = new WeakMap<PaneSet, Map<string, Known>>();

export function moveOthers(paneSet: PaneSet, lead: Side): void {
  const stage = paneSet.stages[lead];
  if (!stage?.scene || !paneSet.study.view.peek().follow) return;
  const { camera, scene } = stage;
  const [x, y] = camera.toWorld(camera.width / 2, camera.height / 2);
  for (const side of paneSet.sides.peek()) {
    const other = paneSet.stages[side];
    if (side !== lead && other?.scene)
      other.follow(...mapOf(paneSet, lead, scene, side, other.scene).at(x, y));
  }
}

/** Which places of two pictures belong together, worked out once for each two pictures. */
function mapOf(paneSet: PaneSet, a: Side, from: Scene, b: Side, to: Scene): LinkedPan {
  const cached = maps.get(paneSet) ?? new Map<string, Known>();
  maps.set(paneSet, cached);
  const key = `${a} ${b}`;
  const old = cached.get(key);
  if (old?.from === from && old.to === to) return old.map;
  const { study } = paneSet;
  const pairs = from.figures.flatMap(({ box, shape }, i) => {
    if (shape === "frame") return [];
    const ids = study.across(a, b, study.members(a, box.id));
    return [...new Set(ids.flatMap((id) => to.index.get(id) ?? []))].map((j) => [i, j] as const);
  });
  const map = new LinkedPan(from, to, pairs);
  cached.set(key, { from, to, map });
  return map;
}

import type { Graph } from "../contract";
import { plural } from "../format";
import type { LayoutInput, LayoutOutput } from "../layout/types";
import { Numbering } from "../numbering";
import type { Rect } from "./camera";
import { type Figure, FONT } from "./measure";
import type { Type } from "./text";

/** An edge of the display list. `path` is null for a tunnel, which shows as a stub at both ends. */
export interface Wire {
  source: number;
  target: number;
  path: Path2D | null;
  /** Bounding box: left, top, right, bottom. */
  box: [number, number, number, number];
  points: Float32Array;
  label: string;
  /** On the first tunnel of a tensor: how many boxes read it far away. */
  far: string;
  /** Whether the label says something that the wire above does not. */
  telling: boolean;
  /** Where the label stands. */
  at: [number, number];
}

/** The display list of one graph: what stands where, in world pixels. */
export interface Scene {
  figures: Figure[];
  x: Float32Array;
  y: Float32Array;
  wires: Wire[];
  /** Wires entering and leaving each box. */
  into: number[][];
  outOf: number[][];
  index: Map<string, number>;
  bounds: Rect;
}

/** What the layout worker needs to know of the figures. */
export function layoutInput(graph: Graph, figures: Figure[]): LayoutInput {
  const tensors = new Numbering<string>();
  return {
    width: Float32Array.from(figures, (f) => f.width),
    height: Float32Array.from(figures, (f) => f.height),
    entry: Uint8Array.from(graph.boxes, (box) => Number(box.kind === "input")),
    source: Int32Array.from(graph.edges, (edge) => edge.source),
    target: Int32Array.from(graph.edges, (edge) => edge.target),
    tensor: Int32Array.from(graph.edges, ({ value }) => tensors.of(value)),
  };
}

export function makeScene(graph: Graph, figures: Figure[], layout: LayoutOutput, type: Type): Scene {
  const into: number[][] = figures.map(() => []);
  const outOf: number[][] = figures.map(() => []);
  graph.edges.forEach((edge, e) => {
    outOf[edge.source]!.push(e);
    into[edge.target]!.push(e);
  });
  const labelled = new Set<string>();
  const keyOf = (edge: Graph["edges"][number]): string => `${edge.source}:${edge.value}`;
  const isFar = (e: number): boolean => layout.offsets[e] === layout.offsets[e + 1];
  const readers = new Map<string, number>();
  graph.edges.forEach((edge, e) => {
    if (isFar(e)) readers.set(keyOf(edge), (readers.get(keyOf(edge)) ?? 0) + 1);
  });
  const wires = graph.edges.map((edge, e): Wire => {
    const points = layout.points.subarray(2 * layout.offsets[e]!, 2 * layout.offsets[e + 1]!);
    const above = into[edge.source]!.map((i) => graph.edges[i]!.label);
    // One label speaks for all wires of a tensor, and a chain of equal shapes is told once.
    const key = keyOf(edge);
    const repeated = labelled.has(key) || above.includes(edge.label);
    labelled.add(key);
    const far = isFar(e) ? readers.get(key) : undefined;
    readers.delete(isFar(e) ? key : "");
    const bottom = layout.y[edge.source]! + figures[edge.source]!.height / 2;
    return {
      source: edge.source,
      target: edge.target,
      path: points.length ? curve(points) : null,
      box: points.length ? boundsOf(points) : stubBounds(layout, figures, edge.source, edge.target),
      points,
      label: type.fit(edge.label || edge.value, FONT.label(type), 180),
      far: far ? `→ ${plural(far, "far reader")}` : "",
      telling: edge.label !== "" && !repeated,
      at: points.length ? [points[0]!, points[1]! + 12] : [stubAt(layout, figures, edge.source), bottom + 12],
    };
  });
  return {
    figures,
    x: layout.x,
    y: layout.y,
    wires,
    into,
    outOf,
    index: new Map(graph.boxes.map((box, i) => [box.id, i])),
    bounds: { x: 0, y: 0, width: layout.width, height: layout.height },
  };
}

/** Through all points, leaving and entering each vertically: calm curves that never cut a box's corner. */
function curve(points: Float32Array): Path2D {
  const path = new Path2D();
  path.moveTo(points[0]!, points[1]!);
  for (let k = 2; k < points.length; k += 2) {
    const [x0, y0, x1, y1] = [points[k - 2]!, points[k - 1]!, points[k]!, points[k + 1]!];
    if (x0 === x1) path.lineTo(x1, y1);
    else path.bezierCurveTo(x0, (y0 + y1) / 2, x1, (y0 + y1) / 2, x1, y1);
  }
  return path;
}

function boundsOf(points: Float32Array): [number, number, number, number] {
  const box: [number, number, number, number] = [Infinity, Infinity, -Infinity, -Infinity];
  for (let k = 0; k < points.length; k += 2) {
    box[0] = Math.min(box[0], points[k]!);
    box[1] = Math.min(box[1], points[k + 1]!);
    box[2] = Math.max(box[2], points[k]!);
    box[3] = Math.max(box[3], points[k + 1]!);
  }
  return box;
}

/** Tunnels start and end beside the middle, where wires do. */
export function stubAt(layout: { x: Float32Array }, figures: Figure[], box: number): number {
  return layout.x[box]! + figures[box]!.width / 2 - 12;
}

/** A tunnel is drawn when either end is in sight. */
function stubBounds(
  layout: LayoutOutput,
  figures: Figure[],
  s: number,
  t: number,
): [number, number, number, number] {
  const ends = new Float32Array([
    layout.x[s]!,
    layout.y[s]! + figures[s]!.height / 2 + 24,
    layout.x[t]!,
    layout.y[t]! - figures[t]!.height / 2 - 24,
  ]);
  return boundsOf(ends);
}

export function rectOf(scene: Scene, i: number): Rect {
  const { width, height } = scene.figures[i]!;
  return { x: scene.x[i]! - width / 2, y: scene.y[i]! - height / 2, width, height };
}

/** The smallest rectangle around several boxes; null for none. */
export function around(scene: Scene, boxes: Iterable<number>): Rect | null {
  let left = Infinity;
  let top = Infinity;
  let right = -Infinity;
  let bottom = -Infinity;
  for (const i of boxes) {
    const r = rectOf(scene, i);
    left = Math.min(left, r.x);
    top = Math.min(top, r.y);
    right = Math.max(right, r.x + r.width);
    bottom = Math.max(bottom, r.y + r.height);
  }
  return left < right ? { x: left, y: top, width: right - left, height: bottom - top } : null;
}

/** The box under a point, or -1. */
export function boxAt(scene: Scene, wx: number, wy: number): number {
  for (let i = 0; i < scene.figures.length; i++) {
    const { width, height } = scene.figures[i]!;
    if (Math.abs(wx - scene.x[i]!) <= width / 2 && Math.abs(wy - scene.y[i]!) <= height / 2) return i;
  }
  return -1;
}

/** The wire that runs within `reach` of a point, or -1. */
export function wireAt(scene: Scene, wx: number, wy: number, reach: number): number {
  let best = -1;
  let least = reach;
  scene.wires.forEach((wire, e) => {
    const [left, top, right, bottom] = wire.box;
    if (!wire.path || wx < left - reach || wx > right + reach || wy < top - reach || wy > bottom + reach)
      return;
    const p = wire.points;
    for (let k = 2; k < p.length; k += 2) {
      const distance = toCurve(wx, wy, p[k - 2]!, p[k - 1]!, p[k]!, p[k + 1]!);
      if (distance < least) {
        least = distance;
        best = e;
      }
    }
  });
  return best;
}

/** Distance to one stretch of a wire, taken along a few chords of its curve. */
function toCurve(x: number, y: number, x0: number, y0: number, x1: number, y1: number): number {
  const chords = x0 === x1 ? 1 : 10;
  const middle = (y0 + y1) / 2;
  let least = Infinity;
  let [ax, ay] = [x0, y0];
  for (let s = 1; s <= chords; s++) {
    const t = s / chords;
    const start = (1 - t) ** 3;
    const end = t ** 3;
    const early = 3 * (1 - t) ** 2 * t;
    const late = 3 * (1 - t) * t ** 2;
    const bx = (start + early) * x0 + (late + end) * x1;
    const by = start * y0 + (early + late) * middle + end * y1;
    least = Math.min(least, toChord(x, y, ax, ay, bx, by));
    [ax, ay] = [bx, by];
  }
  return least;
}

function toChord(x: number, y: number, ax: number, ay: number, bx: number, by: number): number {
  const square = (bx - ax) ** 2 + (by - ay) ** 2;
  const t = square ? Math.min(1, Math.max(0, ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / square)) : 0;
  return Math.hypot(x - ax - t * (bx - ax), y - ay - t * (by - ay));
}

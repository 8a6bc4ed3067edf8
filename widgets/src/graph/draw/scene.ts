import type { Edge } from "../../core/contract";
import { plural } from "../../core/format";
import type { LayoutInput, LayoutOutput } from "../layout/types";
import { FRAME } from "../layout/types";
import { Numbering } from "../numbering";
import type { VisibleGraph } from "../visible_graph";
import type { Rect } from "./camera";
import { type Figure, FOLD, FONT } from "./measure";
import type { Pen } from "./pen";
import type { Type } from "./text";

export interface Wire {
  source: number;
  target: number;
  label: string;
  /** A tunnel, which shows as a stub at both ends. On the first one of a tensor: how many boxes read it far away. */
  far: string;
  /** Whether the label says something that the wire above does not. */
  informative: boolean;
}

/** The display list of one graph: what stands where, in world pixels. */
export interface Scene {
  figures: Figure[];
  /** Centres and sizes of the boxes; a frame stands before its members. */
  x: Float32Array;
  y: Float32Array;
  width: Float32Array;
  height: Float32Array;
  wires: Wire[];
  /** Points of wire e: x, y pairs from `points[2 * offsets[e]]` to `points[2 * offsets[e + 1]]`; none for a tunnel. */
  points: Float32Array;
  offsets: Int32Array;
  extents: Float32Array;
  into: number[][];
  outOf: number[][];
  /** Every box, hidden ones included, to the position that shows it. */
  index: ReadonlyMap<string, number>;
  bounds: Rect;
  across: boolean;
}

export function layoutInput(
  visible: VisibleGraph,
  figures: readonly Figure[],
  across: boolean,
  type: Type,
): LayoutInput {
  const { boxes, edges } = visible.graph;
  const tensors = new Numbering<string>();
  const room = across ? labelRoom(visible, figures, type) : null;
  const input: LayoutInput = {
    width: new Float32Array(boxes.length),
    height: new Float32Array(boxes.length),
    entry: new Uint8Array(boxes.length),
    parent: visible.parent,
    source: new Int32Array(edges.length),
    target: new Int32Array(edges.length),
    tensor: new Int32Array(edges.length),
    across,
  };
  figures.forEach(({ width, height, box }, i) => {
    input.width[i] = width + (room?.[i] ?? 0);
    input.height[i] = height;
    input.entry[i] = Number(box.kind === "input");
  });
  edges.forEach(({ source, target, value }, e) => {
    input.source[e] = source;
    input.target[e] = target;
    input.tensor[e] = tensors.of(value);
  });
  return input;
}

export function makeScene(
  visible: VisibleGraph,
  figures: Figure[],
  layout: LayoutOutput,
  type: Type,
  across: boolean,
): Scene {
  const { edges } = visible.graph;
  const { offsets, points } = layout;
  if (across) trimRoom(layout, edges, labelRoom(visible, figures, type));
  const [into, outOf] = ends(edges, figures.length);
  const scene: Scene = {
    figures,
    x: layout.x,
    y: layout.y,
    width: layout.boxWidth,
    height: layout.boxHeight,
    wires: wiresOf(edges, into, outOf, offsets),
    points,
    offsets,
    extents: new Float32Array(4 * edges.length),
    into,
    outOf,
    index: visible.place,
    bounds: { x: 0, y: 0, width: layout.width, height: layout.height },
    across,
  };
  for (let e = 0; e < edges.length; e++) extend(scene, e, type);
  return scene;
}

/** Wires whose labels say something. One speaks for all wires of a tensor, and a chain of equal shapes is told once. */
function telling(edges: readonly Edge[], into: number[][], outOf: number[][]): Uint8Array {
  const informative = new Uint8Array(edges.length);
  outOf.forEach((list, box) => {
    if (!list.length) return;
    const above = new Set(into[box]!.map((e) => edges[e]!.label));
    const labelled = new Set<string>();
    for (const e of list) {
      const { value, label } = edges[e]!;
      informative[e] = Number(label !== "" && !above.has(label) && !labelled.has(value));
      labelled.add(value);
    }
  });
  return informative;
}

function ends(edges: readonly Edge[], boxes: number): [into: number[][], outOf: number[][]] {
  const into: number[][] = Array.from({ length: boxes }, () => []);
  const outOf: number[][] = Array.from({ length: boxes }, () => []);
  edges.forEach((edge, e) => {
    outOf[edge.source]!.push(e);
    into[edge.target]!.push(e);
  });
  return [into, outOf];
}

/** Widest label that a graph from left to right makes room for, in pixels. */
const LABEL = 120;

/** What the labels of its wires need at the right of each box, where wires run from left to right. */
function labelRoom({ graph, frames }: VisibleGraph, figures: readonly Figure[], type: Type): Float32Array {
  const { edges } = graph;
  const informative = telling(edges, ...ends(edges, figures.length));
  const room = new Float32Array(figures.length);
  edges.forEach(({ source, label }, e) => {
    if (!informative[e] || frames.has(source)) return;
    const width = Math.ceil(Math.min(LABEL, type.width(label.slice(0, 60), FONT.label(type))));
    room[source] = Math.max(room[source]!, width);
  });
  return room;
}

/** Makes boxes as wide again as they are drawn; wires start at them. */
function trimRoom(layout: LayoutOutput, edges: readonly Edge[], room: Float32Array): void {
  const { x, boxWidth, points, offsets } = layout;
  edges.forEach(({ source }, e) => {
    const k = 2 * offsets[e]!;
    if (offsets[e] !== offsets[e + 1] && points[k]! > x[source]!) points[k]! -= room[source]!;
  });
  room.forEach((width, i) => {
    boxWidth[i]! -= width;
    x[i]! -= width / 2;
  });
}

function wiresOf(edges: Edge[], into: number[][], outOf: number[][], offsets: Int32Array): Wire[] {
  const informative = telling(edges, into, outOf);
  const wires = edges.map(
    ({ source, target, label, value }, e): Wire => ({
      source,
      target,
      label: label || value,
      far: "",
      informative: informative[e] === 1,
    }),
  );
  for (const list of outOf) {
    const first = new Map<string, { at: number; count: number }>();
    for (const e of list) {
      if (offsets[e] !== offsets[e + 1]) continue;
      const entry = first.get(edges[e]!.value);
      if (entry) entry.count++;
      else first.set(edges[e]!.value, { at: e, count: 1 });
    }
    for (const { at, count } of first.values()) wires[at]!.far = `→ ${plural(count, "far reader")}`;
  }
  return wires;
}

const STUB = 24;

function extend(scene: Scene, e: number, type: Type): void {
  const { points, offsets, extents, wires, x, y, width, height, across } = scene;
  let left = Infinity;
  let top = Infinity;
  let right = -Infinity;
  let bottom = -Infinity;
  for (let k = 2 * offsets[e]!; k < 2 * offsets[e + 1]!; k += 2) {
    const px = points[k]!;
    const py = points[k + 1]!;
    if (px < left) left = px;
    if (px > right) right = px;
    if (py < top) top = py;
    if (py > bottom) bottom = py;
  }
  if (left === Infinity) {
    // A tunnel is drawn when either end is in sight.
    const { source: s, target: t } = wires[e]!;
    const [w, h] = across ? [STUB, 0] : [0, STUB];
    left = Math.min(x[s]! - width[s]! / 2, x[t]! - width[t]! / 2 - w);
    right = Math.max(x[s]! + width[s]! / 2 + w, x[t]! + width[t]! / 2);
    top = Math.min(y[s]! - height[s]! / 2, y[t]! - height[t]! / 2 - h);
    bottom = Math.max(y[s]! + height[s]! / 2 + h, y[t]! + height[t]! / 2);
  } else if (wires[e]!.informative) right = Math.max(right, left + type.width("0", FONT.label(type)) * 24);
  extents[4 * e] = left;
  extents[4 * e + 1] = top;
  extents[4 * e + 2] = right;
  extents[4 * e + 3] = bottom;
}

/** Traces wire e: through all its points, leaving and entering each along the main axis, so that it cuts no corner. */
export function trace(pen: Pick<Pen, "moveTo" | "lineTo" | "bezierCurveTo">, scene: Scene, e: number): void {
  const { points: p, offsets, across } = scene;
  const end = 2 * offsets[e + 1]!;
  let k = 2 * offsets[e]!;
  pen.moveTo(p[k]!, p[k + 1]!);
  for (k += 2; k < end; k += 2) {
    const [x0, y0, x1, y1] = [p[k - 2]!, p[k - 1]!, p[k]!, p[k + 1]!];
    if (x0 === x1 || y0 === y1) pen.lineTo(x1, y1);
    else if (across) pen.bezierCurveTo((x0 + x1) / 2, y0, (x0 + x1) / 2, y1, x1, y1);
    else pen.bezierCurveTo(x0, (y0 + y1) / 2, x1, (y0 + y1) / 2, x1, y1);
  }
}

export const isTunnel = ({ offsets }: Scene, e: number): boolean => offsets[e] === offsets[e + 1];

/** Where a tunnel starts or ends at the edge of a box: beside the middle, where wires do. */
export function stubAt(scene: Scene, box: number, leaving: boolean): [number, number] {
  const { x, y, width, height, across } = scene;
  const sign = leaving ? 0.5 : -0.5;
  return across
    ? [x[box]! + sign * width[box]!, y[box]! + height[box]! / 2 - Math.min(6, height[box]! / 4)]
    : [x[box]! + width[box]! / 2 - 12, y[box]! + sign * height[box]!];
}

export function rectOf(scene: Scene, i: number): Rect {
  const width = scene.width[i]!;
  const height = scene.height[i]!;
  return { x: scene.x[i]! - width / 2, y: scene.y[i]! - height / 2, width, height };
}

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

/** The innermost box under a point, or -1. */
export function boxAt(scene: Scene, wx: number, wy: number): number {
  const { x, y, width, height } = scene;
  for (let i = x.length - 1; i >= 0; i--) {
    if (Math.abs(wx - x[i]!) <= width[i]! / 2 && Math.abs(wy - y[i]!) <= height[i]! / 2) return i;
  }
  return -1;
}

/** The square in the corner of a box that folds or opens it. */
export function foldRect({ width, shape }: { width: number; shape: Figure["shape"] }): Rect {
  const { side, edge } = FOLD;
  const y = shape === "frame" ? (FRAME.head - side) / 2 : edge - 1;
  return { x: width - edge - side, y, width: side, height: side };
}

export function foldAt(scene: Scene, wx: number, wy: number): number {
  const i = boxAt(scene, wx, wy);
  if (i < 0 || !scene.figures[i]!.fold) return -1;
  const box = rectOf(scene, i);
  const square = foldRect({ width: box.width, shape: scene.figures[i]!.shape });
  const near = (at: number, from: number, size: number): boolean => at >= from - 4 && at <= from + size + 4;
  return near(wx - box.x, square.x, square.width) && near(wy - box.y, square.y, square.height) ? i : -1;
}

/** The wire that runs within `reach` of a point, or -1. */
export function wireAt(scene: Scene, wx: number, wy: number, reach: number): number {
  const { extents, points: p, offsets, across } = scene;
  let best = -1;
  let least = reach;
  for (let e = 0; e < scene.wires.length; e++) {
    if (wx < extents[4 * e]! - reach || wx > extents[4 * e + 2]! + reach) continue;
    if (wy < extents[4 * e + 1]! - reach || wy > extents[4 * e + 3]! + reach) continue;
    for (let k = 2 * offsets[e]! + 2; k < 2 * offsets[e + 1]!; k += 2) {
      const [x0, y0, x1, y1] = [p[k - 2]!, p[k - 1]!, p[k]!, p[k + 1]!];
      const distance = across ? toCurve(wy, wx, y0, x0, y1, x1) : toCurve(wx, wy, x0, y0, x1, y1);
      if (distance < least) {
        least = distance;
        best = e;
      }
    }
  }
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

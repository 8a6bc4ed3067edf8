// Wires and the frames they cross: edges that would be drawn alike become one wire, and a wire becomes one segment
// for every frame that it runs through.
import { farEdges } from "./blocks";
import { backEdges, Digraph } from "./digraph";
import type { LayoutInput } from "./types";

/** Wires between the same two boxes; further tensors run along with these. */
const FAN = 8;

/** Ends of segments at the border of their frame. */
export const TOP = -1;
export const BOTTOM = -2;

/** Segments, each inside one frame or, at level `size`, outside of all. The upper end is drawn above the lower. */
export interface Segments {
  level: number[];
  upper: number[];
  lower: number[];
  lane: number[];
  /** The segment that brings the wire here, or -1 at its source. */
  before: number[];
  /** 1 where the wire runs upward, because it closes a cycle. */
  upward: number[];
}

/** The segments of all wires and, for each edge, the last segment of its wire or -1 for a tunnel. */
export function segments(input: LayoutInput, depth: Int32Array): Segments & { last: Int32Array } {
  const { parent } = input;
  const size = parent.length;
  const frame = new Uint8Array(size);
  for (const p of parent) if (p >= 0) frame[p] = 1;
  const wires = wiresOf(input, depth);
  const result: Segments = { level: [], upper: [], lower: [], lane: [], before: [], upward: [] };
  const add = (level: number, upper: number, lower: number, lane: number, before: number): number => {
    result.upper.push(upper);
    result.lower.push(lower);
    result.lane.push(lane);
    result.before.push(before);
    result.upward.push(0);
    return result.level.push(level < 0 ? size : level) - 1;
  };

  const lanes = wires.lane.reduce((most, lane) => Math.max(most, lane), 0) + 1;
  const segmentOf = new Map<number, number>();
  const joint = new Int32Array(wires.lane.length);
  for (let w = 0; w < joint.length; w++) {
    const [s, t] = [wires.source[w]!, wires.target[w]!];
    const [a, b] = siblings(s, t, parent, depth);
    const key = (2 * b + Number(b === t)) * lanes + wires.lane[w]!;
    const at = frame[b] ? segmentOf.get(key) : undefined;
    joint[w] = at ?? add(parent[a]!, a, b, wires.lane[w]!, -1);
    if (frame[b]) segmentOf.set(key, joint[w]!);
  }
  const back = backEdges(new Digraph(size, result.upper, result.lower));
  for (let g = 0; g < back.length; g++) {
    if (!back[g]) continue;
    result.upward[g] = 1;
    [result.upper[g], result.lower[g]] = [result.lower[g]!, result.upper[g]!];
  }

  const left = new Map<number, number>();
  const chain = (of: Map<number, number>, key: number, v: number, end: number, w: number, before: number) => {
    let at = of.get(key);
    if (at === undefined) {
      const above = end === TOP;
      at = add(parent[v]!, above ? end : v, above ? v : end, wires.lane[w]!, before);
      of.set(key, at);
    }
    return at;
  };
  for (let w = 0; w < joint.length; w++) {
    const middle = joint[w]!;
    const up = result.upward[middle]!;
    const lane = wires.lane[w]!;
    const level = result.level[middle] === size ? -1 : result.level[middle]!;
    let before = -1;
    for (let v = wires.source[w]!; parent[v] !== level; v = parent[v]!) {
      before = chain(left, (2 * v + up) * lanes + lane, v, up ? TOP : BOTTOM, w, before);
      result.upward[before] = up;
    }
    result.before[middle] = before;
    const inward: number[] = [];
    const t = wires.target[w]!;
    for (let v = t; parent[v] !== level; v = parent[v]!) inward.push(v);
    let at = middle;
    for (let k = inward.length - 1; k >= 0; k--) {
      const v = inward[k]!;
      at = chain(segmentOf, (2 * v + Number(v === t)) * lanes + lane, v, up ? BOTTOM : TOP, w, at);
      result.upward[at] = up;
    }
    joint[w] = at;
  }
  return { ...result, last: wires.of.map((w) => (w < 0 ? -1 : joint[w]!)) };
}

function siblings(a: number, b: number, parent: Int32Array, depth: Int32Array): [number, number] {
  while (depth[a]! > depth[b]!) a = parent[a]!;
  while (depth[b]! > depth[a]!) b = parent[b]!;
  while (parent[a] !== parent[b]) {
    a = parent[a]!;
    b = parent[b]!;
  }
  return [a, b];
}

/** One wire for all edges of a tensor between two boxes, few for many tensors; for each edge its wire or -1. */
function wiresOf(
  input: LayoutInput,
  depth: Int32Array,
): { source: number[]; target: number[]; lane: number[]; of: Int32Array } {
  const { parent, source, target, tensor } = input;
  const size = parent.length;
  const flat = new Digraph(size, source, target);
  const back = backEdges(flat);
  const down = new Digraph(
    size,
    source.map((s, e) => (back[e] ? target[e]! : s)),
    target.map((t, e) => (back[e] ? source[e]! : t)),
  );
  // Without edges from a box to itself, which have no room in a layered drawing, no cycle is left.
  const tunnel = farEdges(down, input.entry);
  const wires = { source: [] as number[], target: [] as number[], lane: [] as number[] };
  const of = new Int32Array(source.length).fill(-1);
  const tensors = tensor.reduce((most, at) => Math.max(most, at), -1) + 1;
  const laneFrom = new Int32Array(tensors).fill(-1);
  const laneOf = new Int32Array(tensors);
  const listFrom = new Int32Array(size).fill(-1);
  const list = new Int32Array(size);
  const next: number[] = [];
  let lanes = 0;
  for (let s = 0; s < size; s++) {
    for (let at = flat.outStart[s]!; at < flat.outStart[s + 1]!; at++) {
      const e = flat.outEdge[at]!;
      const t = target[e]!;
      if (tunnel[e] || s === t) continue;
      if (depth[s] || depth[t]) {
        const [a, b] = siblings(s, t, parent, depth);
        if (a === b) continue;
      }
      const k = tensor[e]!;
      if (laneFrom[k] !== s) {
        laneFrom[k] = s;
        laneOf[k] = lanes++;
      }
      if (listFrom[t] !== s) {
        listFrom[t] = s;
        list[t] = -1;
      }
      let count = 0;
      let w = list[t]!;
      for (; w >= 0 && wires.lane[w] !== laneOf[k]; w = next[w]!) count++;
      if (w < 0 && count < FAN) {
        wires.source.push(s);
        wires.target.push(t);
        w = wires.lane.push(laneOf[k]!) - 1;
        next.push(list[t]!);
        list[t] = w;
      } else if (w < 0) {
        w = list[t]!;
        for (let skip = k % FAN; skip > 0; skip--) w = next[w]!;
      }
      of[e] = w;
    }
  }
  return { ...wires, of };
}

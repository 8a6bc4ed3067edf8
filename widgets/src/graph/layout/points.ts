import type { Segments } from "./wires";

/** A placed level: box centres, and each edge's points as a route that is shared and where it is moved to. */
export interface Sheet {
  width: number;
  height: number;
  x: Float64Array;
  y: Float64Array;
  routes: number[][];
  dx: Float64Array;
  dy: Float64Array;
}

/** The points of all edges: those of the segments of its wire one after another, where their frames stand. */
export function pointsOf(
  wires: Segments & { last: Int32Array },
  sheets: Sheet[],
  line: Int32Array,
  left: Float64Array,
  above: Float64Array,
  across: boolean,
): [Float32Array, Int32Array] {
  const offsets = new Int32Array(wires.last.length + 1);
  const out: number[] = [];
  const chain: number[] = [];
  for (let e = 0; e < wires.last.length; e++) {
    const start = out.length;
    for (let g = wires.last[e]!; g >= 0; g = wires.before[g]!) chain.push(g);
    while (chain.length) {
      const g = chain.pop()!;
      const level = wires.level[g]!;
      const sheet = sheets[level]!;
      const route = sheet.routes[line[g]!]!;
      const dx = sheet.dx[line[g]!]! + left[level]!;
      const dy = sheet.dy[line[g]!]! + above[level]!;
      const step = wires.upward[g] ? -2 : 2;
      for (let k = step > 0 ? 0 : route.length - 2; k >= 0 && k < route.length; k += step) {
        push(out, start, route[k]! + dx, route[k + 1]! + dy);
      }
    }
    if (out.length === start + 2) out.push(out[start]!, out[start + 1]!);
    offsets[e + 1] = out.length / 2;
  }
  const points = Float32Array.from(out);
  if (across) {
    for (let k = 0; k < points.length; k += 2) [points[k], points[k + 1]] = [points[k + 1]!, points[k]!];
  }
  return [points, offsets];
}

function push(out: number[], start: number, x: number, y: number): void {
  const n = out.length;
  const HAIR = 1e-6;
  const straight = n > start && Math.abs(out[n - 2]! - x) < HAIR;
  if (straight && Math.abs(out[n - 1]! - y) < HAIR) return;
  if (straight && n > start + 2 && Math.abs(out[n - 4]! - x) < HAIR) out[n - 1] = y;
  else out.push(x, y);
}

// Counts how often drawn wires cross, in rtlab's layout and in plain dagre with the same gaps.
import { layout as dagre, Graph } from "@dagrejs/dagre";
import { layout } from "../src/graph/layout/layout";
import { GAP, type LayoutInput, type LayoutOutput } from "../src/graph/layout/types";
import { type Drawn, inputOf } from "./graphs";

interface Wire {
  source: number;
  target: number;
  points: number[];
}

/** Proper intersections of the polylines of wires that share no end. */
export function crossings(wires: Wire[]): number {
  const pieces = wires.flatMap(({ points }, w) => {
    const found: { w: number; x0: number; y0: number; x1: number; y1: number; top: number; end: number }[] =
      [];
    for (let k = 2; k < points.length; k += 2) {
      const [x0, y0, x1, y1] = points.slice(k - 2, k + 2) as [number, number, number, number];
      found.push({ w, x0, y0, x1, y1, top: Math.min(y0, y1), end: Math.max(y0, y1) });
    }
    return found;
  });
  pieces.sort((a, b) => a.top - b.top);
  let total = 0;
  pieces.forEach((a, i) => {
    const one = wires[a.w]!;
    for (let k = i + 1; k < pieces.length && pieces[k]!.top <= a.end; k++) {
      const b = pieces[k]!;
      const two = wires[b.w]!;
      const side = (x: number, y: number, of: typeof a): number =>
        Math.sign((of.x1 - of.x0) * (y - of.y0) - (of.y1 - of.y0) * (x - of.x0));
      if (side(b.x0, b.y0, a) * side(b.x1, b.y1, a) >= 0 || side(a.x0, a.y0, b) * side(a.x1, a.y1, b) >= 0)
        continue;
      const ends = new Set([one.source, one.target, two.source, two.target]);
      if (ends.size === 4) total++;
    }
  });
  return total;
}

/** Crossings in a picture and in plain dagre's of the same graph, among the wires that the picture draws. */
export function against(
  input: LayoutInput,
  { points, offsets }: Pick<LayoutOutput, "points" | "offsets">,
): { ours: number; theirs: number } {
  const plain = new Graph({ multigraph: true });
  plain.setGraph({ rankdir: "TB", nodesep: GAP.node, edgesep: GAP.lane, ranksep: GAP.rank });
  plain.setDefaultEdgeLabel(() => ({}));
  for (let v = 0; v < input.width.length; v++)
    plain.setNode(String(v), { width: input.width[v]!, height: input.height[v]! });
  const wires: (Wire & { e: number })[] = [];
  for (let e = 0; e < input.source.length; e++) {
    const [source, target] = [input.source[e]!, input.target[e]!];
    plain.setEdge(String(source), String(target), {}, String(e));
    const route = Array.from(points.subarray(2 * offsets[e]!, 2 * offsets[e + 1]!));
    if (route.length) wires.push({ source, target, points: route, e });
  }
  dagre(plain);
  const theirs = wires.map(({ source, target, e }) => {
    const found = plain.edge(String(source), String(target), String(e)).points as { x: number; y: number }[];
    return { source, target, points: found.flatMap(({ x, y }) => [x, y]) };
  });
  return { ours: crossings(wires), theirs: crossings(theirs) };
}

/** The same for a graph that has not been laid out yet. */
export function compared(graph: Drawn): { ours: number; theirs: number } {
  const input = inputOf(graph);
  return against(input, layout(input));
}

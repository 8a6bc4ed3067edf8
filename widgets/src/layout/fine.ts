import { Graph, layout } from "@dagrejs/dagre";
import { GAP, type Piece, type Placement } from "./types";

/** Lays a piece out with dagre: the best picture, at a cost that grows fast with the piece's size. */
export function fine(piece: Piece): Placement {
  const graph = new Graph({ multigraph: true });
  graph.setGraph({
    rankdir: "TB",
    nodesep: GAP.node,
    edgesep: GAP.lane,
    ranksep: GAP.rank,
    marginx: 0,
    marginy: 0,
  });
  graph.setDefaultEdgeLabel(() => ({}));
  const boxes = piece.width.length;
  for (let v = 0; v < boxes; v++) {
    graph.setNode(String(v), { width: piece.width[v]!, height: piece.height[v]! });
  }
  for (let e = 0; e < piece.source.length; e++) {
    graph.setEdge(String(piece.source[e]!), String(piece.target[e]!), { weight: 16 }, `e${e}`);
  }
  piece.guards.forEach(([s, t], g) => void graph.setEdge(String(s), String(t), { weight: 1 }, `g${g}`));
  layout(graph);

  const y = Array.from({ length: boxes }, (_, v) => graph.node(String(v)).y as number);
  const levels = [...new Set(y.map(round))].sort((a, b) => a - b);
  const level = new Map(levels.map((at, rank) => [at, rank]));
  const rank = Int32Array.from(y, (at) => level.get(round(at))!);
  const x = Float64Array.from({ length: boxes }, (_, v) => graph.node(String(v)).x as number);
  const lanes = Array.from(piece.source, (s, e) => {
    const t = piece.target[e]!;
    const points = graph.edge(String(s), String(t), `e${e}`).points as { x: number; y: number }[];
    const lane: number[] = [];
    for (let r = rank[s]! + 1; r < rank[t]!; r++) lane.push(abscissa(points, levels[r]!));
    return lane;
  });
  return { rank, x, lanes };
}

/** dagre centres all boxes of a rank on one line; floating point may differ in the last places. */
const round = (at: number): number => Math.round(at * 64) / 64;

function abscissa(points: { x: number; y: number }[], y: number): number {
  for (let k = 1; k < points.length; k++) {
    const a = points[k - 1]!;
    const b = points[k]!;
    if (y <= b.y) return b.y === a.y ? b.x : a.x + ((b.x - a.x) * Math.max(0, y - a.y)) / (b.y - a.y);
  }
  return points.at(-1)!.x;
}

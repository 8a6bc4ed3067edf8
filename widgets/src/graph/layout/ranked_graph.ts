import { Digraph } from "./digraph";
import type { Piece } from "./types";

/** Boxes and lane points as one layered graph in which every link joins neighbouring ranks. */
export interface RankedGraph {
  boxes: number;
  width: Float64Array;
  rank: Int32Array;
  up: Links;
  down: Links;
  /** Nodes from left to right, rank after rank; rank r stands from `start[r]` to `start[r + 1]`. */
  slots: Int32Array;
  start: Int32Array;
  /** For each edge the first of the lane points that it runs through; the others follow. */
  lane: Int32Array;
  ports: boolean;
}

/** The links of all nodes to one side. */
export interface Links {
  start: Int32Array;
  end: Int32Array;
  weight: Float64Array;
  /** Where links end: pixels from the middle of the node here and there, and the share of the width at the left. */
  here: Float64Array;
  there: Float64Array;
  shareHere: Float64Array;
  shareThere: Float64Array;
}

/** A piece as a ladder, its boxes on given ranks. */
export function rankedGraph(piece: Piece, boxRank: Int32Array): RankedGraph {
  const { source, target, tensor } = piece;
  const boxes = piece.width.length;
  const edges = source.length;
  // One lane for each tensor of a box, as long as its farthest edge needs.
  const from = new Digraph(boxes, source, []);
  const tensors = Array.from(tensor).reduce((most, k) => Math.max(most, k), -1) + 1;
  const stamp = new Int32Array(tensors).fill(-1);
  const laneOf = new Int32Array(tensors);
  const edgeLane = new Int32Array(edges);
  const lanes: { from: number; length: number; first: number; leaves: number }[] = [];
  for (let s = 0; s < boxes; s++) {
    for (const e of from.out(s)) {
      const k = tensor[e]!;
      if (stamp[k] !== s) {
        stamp[k] = s;
        laneOf[k] = lanes.push({ from: s, length: 0, first: 0, leaves: piece.leaves[e]! }) - 1;
      }
      const lane = lanes[laneOf[k]!]!;
      lane.length = Math.max(lane.length, boxRank[target[e]!]! - boxRank[s]! - 1);
      edgeLane[e] = laneOf[k]!;
    }
  }
  let size = boxes;
  let count = edges;
  for (const lane of lanes) {
    lane.first = size;
    size += lane.length;
    count += lane.length;
  }
  const width = new Float64Array(size);
  width.set(piece.width);
  const rank = new Int32Array(size);
  rank.set(boxRank);
  const upper = new Int32Array(count);
  const lower = new Int32Array(count);
  const weight = new Float64Array(count);
  const leaves = new Float64Array(count);
  const enters = new Float64Array(count);
  const lane = new Int32Array(edges);
  for (const { from: s, length, first, leaves: offset } of lanes) {
    for (let k = 0; k < length; k++) {
      const link = edges + first - boxes + k;
      rank[first + k] = boxRank[s]! + 1 + k;
      upper[link] = k ? first + k - 1 : s;
      lower[link] = first + k;
      if (!k) leaves[link] = offset;
    }
  }
  for (let e = 0; e < edges; e++) {
    const [s, t] = [source[e]!, target[e]!];
    const { first } = lanes[edgeLane[e]!]!;
    const span = boxRank[t]! - boxRank[s]! - 1;
    lane[e] = first;
    upper[e] = span ? first + span - 1 : s;
    lower[e] = t;
    weight[e] = 1;
    leaves[e] = span ? 0 : piece.leaves[e]!;
    enters[e] = piece.enters[e]!;
    for (let k = 0; k < span; k++) weight[edges + first - boxes + k]!++;
  }
  const ports = leaves.some(Boolean) || enters.some(Boolean);
  const start = new Int32Array(rank.reduce((a, b) => Math.max(a, b), 0) + 2);
  for (const r of rank) start[r + 1]!++;
  for (let r = 1; r < start.length; r++) start[r]! += start[r - 1]!;
  return {
    boxes,
    width,
    rank,
    down: linksOf(size, upper, lower, weight, leaves, enters, width),
    up: linksOf(size, lower, upper, weight, enters, leaves, width),
    slots: new Int32Array(size),
    start,
    lane,
    ports,
  };
}

function linksOf(
  size: number,
  from: Int32Array,
  to: Int32Array,
  weight: Float64Array,
  here: Float64Array,
  there: Float64Array,
  width: Float64Array,
): Links {
  const rows = new Digraph(size, from, []);
  const start = new Int32Array(size + 1);
  const links: Links = {
    start,
    end: new Int32Array(from.length),
    weight: new Float64Array(from.length),
    here: new Float64Array(from.length),
    there: new Float64Array(from.length),
    shareHere: new Float64Array(from.length),
    shareThere: new Float64Array(from.length),
  };
  const share = (v: number, offset: number): number =>
    width[v]! ? Math.min(0.99, Math.max(0, 0.5 + offset / width[v]!)) : 0.5;
  let at = 0;
  for (let v = 0; v < size; v++) {
    const row = rows.out(v);
    row.sort((a, b) => here[a]! - here[b]! || a - b);
    for (const l of row) {
      links.end[at] = to[l]!;
      links.weight[at] = weight[l]!;
      links.here[at] = here[l]!;
      links.there[at] = there[l]!;
      links.shareHere[at] = share(v, here[l]!);
      links.shareThere[at] = share(to[l]!, there[l]!);
      at++;
    }
    start[v + 1] = at;
  }
  return links;
}

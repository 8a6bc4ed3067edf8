// A layered layout whose passes are all close to linear, for pieces that are too large for dagre: one lane per
// tensor, barycentre sweeps against crossings, and abscissae by isotonic regression (pool adjacent violators).
import { Digraph, ranks } from "./digraph";
import { GAP, type Piece, type Placement } from "./types";

const SWEEPS = 6;
const PLACEMENTS = 8;

/** Boxes and lane points as one layered graph in which every link joins neighbouring ranks. */
interface Ladder {
  width: number[];
  rank: number[];
  up: number[][];
  down: number[][];
  layers: number[][];
  /** For each edge the lane points that it runs through. */
  lanes: number[][];
}

export function layered(piece: Piece): Placement {
  const boxes = piece.width.length;
  const ladder = build(piece);
  order(ladder, boxes);
  const x = abscissae(ladder, boxes);
  return {
    rank: Int32Array.from(ladder.rank.slice(0, boxes)),
    x: x.slice(0, boxes),
    lanes: ladder.lanes.map((points) => points.map((p) => x[p]!)),
  };
}

function build(piece: Piece): Ladder {
  const boxes = piece.width.length;
  const all = new Digraph(
    boxes,
    [...piece.source, ...piece.guards.map(([s]) => s)],
    [...piece.target, ...piece.guards.map(([, t]) => t)],
  );
  const fed = new Uint8Array(boxes);
  for (const t of piece.target) fed[t] = 1;
  const rank = Array.from(ranks(all, (v) => !fed[v]));
  const top = rank.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
  for (let v = 0; v < boxes; v++) rank[v]! -= top;

  const width = [...piece.width];
  const up: number[][] = width.map(() => []);
  const down: number[][] = width.map(() => []);
  const link = (a: number, b: number): void => {
    down[a]!.push(b);
    up[b]!.push(a);
  };
  const laneOf = new Map<string, number[]>();
  const lanes = piece.source.map((s, e) => {
    const t = piece.target[e]!;
    const span = rank[t]! - rank[s]!;
    const key = `${s}:${piece.tensor[e]}`;
    const lane = laneOf.get(key) ?? [];
    laneOf.set(key, lane);
    while (lane.length < span - 1) {
      const point = width.push(0) - 1;
      rank.push(rank[s]! + lane.length + 1);
      up.push([]);
      down.push([]);
      link(lane.at(-1) ?? s, point);
      lane.push(point);
    }
    const used = lane.slice(0, span - 1);
    link(used.at(-1) ?? s, t);
    return used;
  });
  const layers: number[][] = [];
  for (const r of rank) while (layers.length <= r) layers.push([]);
  return { width, rank, up, down, layers, lanes };
}

/** Orders every layer so that few links cross. */
function order(ladder: Ladder, boxes: number): void {
  const { layers, up, down, rank } = ladder;
  const seen = new Uint8Array(rank.length);
  // A depth-first start keeps the boxes of one branch beside each other.
  for (let root = 0; root < boxes; root++) {
    if (up[root]!.length) continue;
    const stack = [root];
    while (stack.length) {
      const v = stack.pop()!;
      if (seen[v]) continue;
      seen[v] = 1;
      layers[rank[v]!]!.push(v);
      const next = down[v]!;
      for (let k = next.length - 1; k >= 0; k--) if (!seen[next[k]!]) stack.push(next[k]!);
    }
  }
  const position = new Float64Array(rank.length);
  const number = (layer: number[]): void =>
    layer.forEach((v, i) => {
      position[v] = i;
    });
  layers.forEach(number);
  const centre = new Float64Array(rank.length);
  const sort = (layer: number[], near: number[][]): void => {
    layer.forEach((v, i) => {
      const neighbours = near[v]!;
      centre[v] = neighbours.length
        ? neighbours.reduce((sum, u) => sum + position[u]!, 0) / neighbours.length
        : i;
    });
    layer.sort((a, b) => centre[a]! - centre[b]! || position[a]! - position[b]!);
    number(layer);
  };
  let best = crossings(ladder, position);
  let kept = layers.map((layer) => layer.slice());
  for (let s = 0; s < SWEEPS && best > 0; s++) {
    if (s % 2 === 0) for (let k = 1; k < layers.length; k++) sort(layers[k]!, up);
    else for (let k = layers.length - 2; k >= 0; k--) sort(layers[k]!, down);
    const now = crossings(ladder, position);
    if (now < best) {
      best = now;
      kept = layers.map((layer) => layer.slice());
    }
  }
  ladder.layers = kept;
}

/** Crossings between all neighbouring layers, counted with a Fenwick tree. */
function crossings(ladder: Ladder, position: Float64Array): number {
  let total = 0;
  for (let k = 0; k + 1 < ladder.layers.length; k++) {
    const layer = ladder.layers[k]!;
    const size = ladder.layers[k + 1]!.length;
    if (layer.length < 2 || size < 2) continue;
    const tree = new Int32Array(size + 1);
    let inserted = 0;
    for (const v of layer) {
      for (const t of ladder.down[v]!) {
        let before = 0;
        for (let i = position[t]! + 1; i > 0; i -= i & -i) before += tree[i]!;
        total += inserted - before;
      }
      for (const t of ladder.down[v]!) {
        for (let i = position[t]! + 1; i <= size; i += i & -i) tree[i]!++;
        inserted++;
      }
    }
  }
  return total;
}

/** Abscissae close to the mean of the neighbours', in the given order and without overlap. */
function abscissae(ladder: Ladder, boxes: number): Float64Array {
  const { layers, width, up, down } = ladder;
  const x = new Float64Array(width.length);
  for (const layer of layers) {
    let edge = 0;
    for (const v of layer) {
      x[v] = edge + width[v]! / 2;
      edge += width[v]! + GAP.node;
    }
    for (const v of layer) x[v]! -= edge / 2;
  }
  const lane = (v: number): boolean => v >= boxes;
  // Long lanes should be straight before short links are.
  const pull = (a: number, b: number): number => (lane(a) && lane(b) ? 8 : lane(a) || lane(b) ? 2 : 1);

  const place = (layer: number[], near: number[][]): void => {
    const offset = new Float64Array(layer.length);
    for (let i = 1; i < layer.length; i++) {
      const a = layer[i - 1]!;
      const b = layer[i]!;
      const gap = lane(a) && lane(b) ? GAP.lane : GAP.node;
      offset[i] = offset[i - 1]! + (width[a]! + width[b]!) / 2 + gap;
    }
    const value: number[] = [];
    const weight: number[] = [];
    const count: number[] = [];
    layer.forEach((v, i) => {
      let sum = 0;
      let total = 0;
      for (const u of near[v]!) {
        const w = pull(v, u);
        sum += w * x[u]!;
        total += w;
      }
      value.push((total ? sum / total : x[v]!) - offset[i]!);
      weight.push(total || 0.05);
      count.push(1);
      while (value.length > 1 && value.at(-2)! > value.at(-1)!) {
        const v1 = value.pop()!;
        const w1 = weight.pop()!;
        const n1 = count.pop()!;
        const k = value.length - 1;
        value[k] = (value[k]! * weight[k]! + v1 * w1) / (weight[k]! + w1);
        weight[k]! += w1;
        count[k]! += n1;
      }
    });
    let i = 0;
    value.forEach((v, b) => {
      for (let c = 0; c < count[b]!; c++, i++) x[layer[i]!] = v + offset[i]!;
    });
  };
  for (let s = 0; s < PLACEMENTS; s++) {
    if (s % 2 === 0) for (let k = 1; k < layers.length; k++) place(layers[k]!, up);
    else for (let k = layers.length - 2; k >= 0; k--) place(layers[k]!, down);
  }
  return x;
}

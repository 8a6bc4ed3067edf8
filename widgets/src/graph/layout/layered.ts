// A layered layout whose passes are all close to linear: one lane per tensor, barycentre sweeps and exchanges of
// neighbours against crossings, abscissae by isotonic regression (pool adjacent violators), and medians of what chains
// join.
import { Digraph, ranks, topological } from "./digraph";
import { type Links, type RankedGraph, rankedGraph } from "./ranked_graph";
import { GAP, type Piece, type Placement } from "./types";

/** Sweeps without a gain before the order is left as it is, and how many links all sweeps of one start may touch. */
const PATIENCE = { least: 4, most: 12 };
const EFFORT = 1_000_000;
/** How many starts are tried: small pieces are worth more of them. */
const starts = (links: number): number => (links < 300 ? 24 : links < 3000 ? 6 : links < 20_000 ? 2 : 1);
const PLACEMENTS = 8;
const SETTLINGS = 4;

export function layered(piece: Piece, rank: Int32Array): Placement {
  const ladder = rankedGraph(piece, rank);
  order(ladder);
  return placed(ladder, piece, abscissae(ladder));
}

function placed(ladder: RankedGraph, piece: Piece, x: Float64Array): Placement {
  const { rank, lane } = ladder;
  const lanes = Array.from(lane, (first, e) => {
    const span = rank[piece.target[e]!]! - rank[piece.source[e]!]! - 1;
    const points: number[] = [];
    for (let k = 0; k < span; k++) points.push(x[first + k]!);
    return points;
  });
  return { rank: rank.slice(0, ladder.boxes), x: x.slice(0, ladder.boxes), lanes };
}

/** Ranks from 0 with short edges: longest paths, then boxes move to where more of their edges become shorter. */
export function compact(piece: Piece): Int32Array {
  const boxes = piece.width.length;
  const edges = piece.source.length;
  const source = new Int32Array(edges + piece.guards.length);
  const target = new Int32Array(edges + piece.guards.length);
  source.set(piece.source);
  target.set(piece.target);
  piece.guards.forEach(([s, t], g) => {
    source[edges + g] = s;
    target[edges + g] = t;
  });
  const graph = new Digraph(boxes, source, target);
  const rank = ranks(graph, () => false);
  const order = topological(graph);
  const pull = new Int32Array(boxes);
  for (let e = 0; e < edges; e++) {
    pull[source[e]!]!++;
    pull[target[e]!]!--;
  }
  for (let pass = 0; pass < 3; pass++) {
    for (let k = boxes - 1; k >= 0; k--) {
      const v = order[k]!;
      const out = graph.out(v);
      if (pull[v]! < 0 || !out.length) continue;
      let low = Number.POSITIVE_INFINITY;
      for (const e of out) low = Math.min(low, rank[target[e]!]! - 1);
      rank[v] = low;
    }
    for (let k = 0; k < boxes; k++) {
      const v = order[k]!;
      const into = graph.in(v);
      if (pull[v]! >= 0 || !into.length) continue;
      let high = 0;
      for (const e of into) high = Math.max(high, rank[source[e]!]! + 1);
      rank[v] = high;
    }
  }
  const top = rank.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
  return rank.map((r) => r - top);
}

/** Orders every rank so that few links cross. */
function order(ladder: RankedGraph): void {
  const { up, down, rank, slots, start } = ladder;
  const size = rank.length;
  const count = start.length - 1;
  const position = new Int32Array(size);
  const limit = Math.max(6, Math.min(60, Math.floor(EFFORT / (down.end.length + 1))));
  const patience = Math.max(PATIENCE.least, Math.min(PATIENCE.most, limit / 4));
  const passes = limit > 12 ? 4 : 1;
  const keys = new Float64Array(size);
  const old = new Int32Array(size);

  const sort = (r: number, near: Links, last: boolean): void => {
    const first = start[r]!;
    const n = start[r + 1]! - first;
    if (n < 2) return;
    for (let i = 0; i < n; i++) {
      const v = slots[first + i]!;
      old[i] = v;
      let sum = 0;
      let total = 0;
      for (let l = near.start[v]!; l < near.start[v + 1]!; l++) {
        const w = near.weight[l]!;
        sum += w * (position[near.end[l]!]! + near.shareThere[l]!);
        total += w;
      }
      // Equal means keep their order, or turn it around so that the search does not stand still.
      const centre = Math.floor((total ? sum / total : i + 0.5) * 64);
      keys[i] = centre * n + (last ? n - 1 - i : i);
    }
    const sorted = keys.subarray(0, n).sort();
    for (let i = 0; i < n; i++) {
      const k = sorted[i]! % n;
      const v = old[last ? n - 1 - k : k]!;
      slots[first + i] = v;
      position[v] = i;
    }
  };

  const gain = (v: number, w: number, near: Links): number => {
    let saved = 0;
    for (let a = near.start[v]!; a < near.start[v + 1]!; a++) {
      const x = position[near.end[a]!]! + near.shareThere[a]!;
      for (let b = near.start[w]!; b < near.start[w + 1]!; b++) {
        const y = position[near.end[b]!]! + near.shareThere[b]!;
        if (x > y) saved += near.weight[a]! * near.weight[b]!;
        else if (x < y) saved -= near.weight[a]! * near.weight[b]!;
      }
    }
    return saved;
  };
  const exchange = (): void => {
    for (let pass = 0, changed = true; changed && pass < passes; pass++) {
      changed = false;
      for (let r = 0; r < count; r++) {
        for (let i = start[r]!; i + 1 < start[r + 1]!; i++) {
          const v = slots[i]!;
          const w = slots[i + 1]!;
          if (gain(v, w, up) + gain(v, w, down) <= 0) continue;
          slots[i] = w;
          slots[i + 1] = v;
          position[w] = i - start[r]!;
          position[v] = i + 1 - start[r]!;
          changed = true;
        }
      }
    }
  };

  let best = Number.POSITIVE_INFINITY;
  const bestSlots = new Int32Array(size);
  const improve = (): void => {
    for (let s = 0, idle = 0; s < limit && idle < patience && best > 0; s++) {
      if (s) {
        const last = s % 4 >= 2;
        if (s % 2) for (let r = 1; r < count; r++) sort(r, up, last);
        else for (let r = count - 2; r >= 0; r--) sort(r, down, last);
        exchange();
      }
      const now = crossings(ladder, position);
      idle++;
      if (now >= best) continue;
      best = now;
      bestSlots.set(slots);
      idle = 0;
    }
  };
  for (let k = 0; k < starts(down.end.length) && best > 0; k++) {
    if (k < 2) walk(ladder, k ? up : down, k ? down : up);
    else shuffle(ladder, k);
    for (let r = 0; r < count; r++)
      for (let i = start[r]!; i < start[r + 1]!; i++) position[slots[i]!] = i - start[r]!;
    improve();
  }
  slots.set(bestSlots);
}

/** A start of no particular order, the same one every time. */
function shuffle({ slots, start }: RankedGraph, seed: number): void {
  const key = (v: number): number => Math.imul(v + seed, 0x9e3779b1 * seed) >>> 8;
  for (let r = 0; r + 1 < start.length; r++) {
    slots.subarray(start[r]!, start[r + 1]!).sort((a, b) => key(a) - key(b) || a - b);
  }
}

/** A depth-first start keeps the boxes of one branch beside each other. */
function walk({ rank, slots, start }: RankedGraph, to: Links, back: Links): void {
  const next = start.slice();
  const visited = new Uint8Array(rank.length);
  const stack: number[] = [];
  for (let root = 0; root < rank.length; root++) {
    if (back.start[root] !== back.start[root + 1]) continue;
    stack.push(root);
    while (stack.length) {
      const v = stack.pop()!;
      if (visited[v]) continue;
      visited[v] = 1;
      slots[next[rank[v]!]!++] = v;
      for (let l = to.start[v + 1]! - 1; l >= to.start[v]!; l--)
        if (!visited[to.end[l]!]) stack.push(to.end[l]!);
    }
  }
}

/** Crossings between all neighbouring ranks, counted with a Fenwick tree. */
function crossings({ slots, start, down, ports }: RankedGraph, position: Int32Array): number {
  // Where links end beside the middle, quarters of a box tell on which side.
  const parts = ports ? 4 : 1;
  let most = 0;
  for (let r = 1; r < start.length; r++) most = Math.max(most, start[r]! - start[r - 1]!);
  const whole = new Float64Array(parts * most + 1);
  let total = 0;
  for (let r = 0; r + 2 < start.length; r++) {
    const n = parts * (start[r + 2]! - start[r + 1]!);
    if (n < 2 || (start[r + 1]! - start[r]! < 2 && !ports)) continue;
    const tree = whole.subarray(0, n + 1).fill(0);
    let inserted = 0;
    for (let i = start[r]!; i < start[r + 1]!; i++) {
      const v = slots[i]!;
      const end = down.start[v + 1]!;
      for (let first = down.start[v]!; first < end; ) {
        let l = first;
        for (; l < end && down.shareHere[l] === down.shareHere[first]; l++) {
          let before = 0;
          const at = Math.floor(parts * (position[down.end[l]!]! + (ports ? down.shareThere[l]! : 0)));
          for (let k = at + 1; k > 0; k -= k & -k) before += tree[k]!;
          total += (inserted - before) * down.weight[l]!;
        }
        for (; first < l; first++) {
          const at = Math.floor(
            parts * (position[down.end[first]!]! + (ports ? down.shareThere[first]! : 0)),
          );
          for (let k = at + 1; k <= n; k += k & -k) tree[k]! += down.weight[first]!;
          inserted += down.weight[first]!;
        }
      }
    }
  }
  return total;
}

/** Abscissae close to the mean of the neighbours', in the given order and without overlap. */
function abscissae(ladder: RankedGraph): Float64Array {
  const { slots, start, width, up, down, boxes } = ladder;
  const size = width.length;
  const count = start.length - 1;
  const x = new Float64Array(size);
  const offset = new Float64Array(size);
  let most = 0;
  for (let r = 0; r < count; r++) {
    most = Math.max(most, start[r + 1]! - start[r]!);
    let edge = 0;
    for (let i = start[r]!; i < start[r + 1]!; i++) {
      const v = slots[i]!;
      if (i > start[r]!) {
        const left = slots[i - 1]!;
        edge += (width[left]! + width[v]!) / 2 + (left >= boxes && v >= boxes ? GAP.lane : GAP.node);
      }
      offset[v] = edge;
    }
    for (let i = start[r]!; i < start[r + 1]!; i++) x[slots[i]!] = offset[slots[i]!]! - edge / 2;
  }
  const value = new Float64Array(most);
  const weight = new Float64Array(most);
  const until = new Int32Array(most);
  const single = (links: Links, v: number): boolean => links.start[v + 1]! - links.start[v]! === 1;
  const bare = (v: number): boolean => up.start[v] === up.start[v + 1] && single(down, v);
  const place = (r: number, sides: Links[]): void => {
    let top = -1;
    for (let i = start[r]!; i < start[r + 1]!; i++) {
      const v = slots[i]!;
      let sum = 0;
      let total = 0;
      for (const near of sides) {
        const far = near === up ? down : up;
        const alone = single(near, v);
        for (let l = near.start[v]!; l < near.start[v + 1]!; l++) {
          const u = near.end[l]!;
          // Long lanes should be straight before chains are, chains before what forks and joins, and constants
          // must not push the main line aside at every step.
          const loose = bare(u) || bare(v);
          const stiff =
            v >= boxes && u >= boxes ? 32 : alone && single(far, u) ? 16 : v >= boxes || u >= boxes ? 2 : 1;
          const w = loose ? 0.05 : stiff;
          sum += w * (x[u]! + near.there[l]! - near.here[l]!);
          total += w;
        }
      }
      top++;
      value[top] = (total ? sum / total : x[v]!) - offset[v]!;
      weight[top] = total || 0.05;
      until[top] = i + 1;
      while (top > 0 && value[top - 1]! > value[top]!) {
        const both = weight[top - 1]! + weight[top]!;
        value[top - 1] = (value[top - 1]! * weight[top - 1]! + value[top]! * weight[top]!) / both;
        weight[top - 1] = both;
        until[top - 1] = until[top]!;
        top--;
      }
    }
    for (let b = 0, i = start[r]!; b <= top; b++) {
      for (; i < until[b]!; i++) x[slots[i]!] = value[b]! + offset[slots[i]!]!;
    }
  };
  for (let s = 0; s < PLACEMENTS; s++) {
    const both = s >= 4 ? [up, down] : null;
    if (s % 2 === 0) for (let r = 1; r < count; r++) place(r, both ?? [up]);
    else for (let r = count - 2; r >= 0; r--) place(r, both ?? [down]);
  }
  for (let s = 0; s < SETTLINGS; s++) straighten(ladder, x);
  return x;
}

/** Where the neighbours leave room, lets lanes and chains run straight down, in the middle of what they join. */
function straighten({ slots, start, rank, width, up, down, boxes }: RankedGraph, x: Float64Array): void {
  const size = x.length;
  const slot = new Int32Array(size);
  for (let i = 0; i < size; i++) slot[slots[i]!] = i;
  const apart = (a: number, b: number): number =>
    (width[a]! + width[b]!) / 2 + (a >= boxes && b >= boxes ? GAP.lane : GAP.node);
  const only = (links: Links, v: number): number =>
    links.start[v + 1]! - links.start[v]! === 1 ? links.start[v]! : -1;
  const run: number[] = [];
  const aside: number[] = [];
  const ends: number[] = [];
  /** Where all links at the ends of the run are shortest, as near as can be to where it stands. */
  const middle = (now: number): number => {
    ends.length = 0;
    const add = (v: number, shift: number, near: Links): void => {
      for (let l = near.start[v]!; l < near.start[v + 1]!; l++)
        ends.push(x[near.end[l]!]! + near.there[l]! - near.here[l]! - shift);
    };
    add(run[0]!, aside[0]!, up);
    add(run.at(-1)!, aside.at(-1)!, down);
    if (!ends.length) return now;
    ends.sort((a, b) => a - b);
    return Math.min(ends[ends.length >> 1]!, Math.max(ends[(ends.length - 1) >> 1]!, now));
  };
  for (let i = 0; i < size; i++) {
    const above = only(up, slots[i]!);
    if (above >= 0 && only(down, up.end[above]!) >= 0) continue;
    run.length = aside.length = 0;
    let [low, high, sum] = [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY, 0];
    for (let v = slots[i]!, shift = 0; ; ) {
      const k = slot[v]!;
      const r = rank[v]!;
      if (k > start[r]!) low = Math.max(low, x[slots[k - 1]!]! + apart(slots[k - 1]!, v) - shift);
      if (k + 1 < start[r + 1]!) high = Math.min(high, x[slots[k + 1]!]! - apart(v, slots[k + 1]!) - shift);
      sum += x[v]! - shift;
      run.push(v);
      aside.push(shift);
      const l = only(down, v);
      if (l < 0 || only(up, down.end[l]!) < 0) break;
      shift += down.here[l]! - down.there[l]!;
      v = down.end[l]!;
    }
    const HAIR = 1e-6;
    if (low > high + HAIR) continue;
    const at = Math.min(high, Math.max(low, middle(sum / run.length)));
    for (let k = 0; k < run.length; k++) x[run[k]!] = at + aside[k]!;
  }
}

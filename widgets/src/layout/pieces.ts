import type { Block } from "./blocks";
import { fine } from "./fine";
import { compact, layered } from "./layered";
import { GAP, type Piece, type Placement } from "./types";

/**
 * How many boxes and bends of edges a block may have that dagre draws, and all such blocks together: its time grows fast
 * with both, so that large blocks and long sums go to the linear layout alone, and so do those too small to differ.
 */
const FINE = { least: 6, most: 100, total: 500 };

/** A placed piece in pixels: centres, one point list per edge, and how far all that reaches. */
export interface Drawing {
  x: Float64Array;
  y: Float64Array;
  routes: number[][];
  extent: { left: number; top: number; right: number; bottom: number };
}

export function draw(
  piece: Piece,
  block: Block,
  borders: { top: boolean; bottom: boolean },
  margin: { top: number; pad: number },
  budget: { fine: number },
): Drawing {
  return toPixels(piece, place(piece, budget), block, borders, margin);
}

/** The better of dagre's picture and the linear layout's; only the latter where dagre would take too long. */
function place(piece: Piece, budget: { fine: number }): Placement {
  const size = piece.width.length;
  if (size === 1) return { rank: new Int32Array(1), x: new Float64Array(1), lanes: [] };
  const rank = compact(piece);
  // Where every box has one edge at most on either side, nothing is left to decide.
  if (size < FINE.least || isChain(piece)) return layered(piece, rank);
  let cost = size - piece.source.length;
  for (let e = 0; e < piece.source.length; e++) cost += rank[piece.target[e]!]! - rank[piece.source[e]!]!;
  if (cost > FINE.most || budget.fine + cost > FINE.total) return layered(piece, rank);
  budget.fine += cost;
  const [first, ...others] = [fine(piece), layered(piece, rank)];
  let best = first!;
  let least = tangle(piece, best);
  if (least.crossings) others.push(layered(piece, best.rank));
  for (const other of others) {
    const { crossings, travel } = tangle(piece, other);
    if (crossings > least.crossings || (crossings === least.crossings && travel >= least.travel)) continue;
    best = other;
    least = { crossings, travel };
  }
  return best;
}

/** How often edges cross, those of one tensor or at one point left out, and how far they move sideways in all. */
function tangle(
  { source, target, leaves, enters }: Piece,
  { rank, x, lanes }: Placement,
): { crossings: number; travel: number } {
  const count = rank.reduce((most, r) => Math.max(most, r), 0);
  const gaps = Array.from({ length: count }, (): { above: number; below: number }[] => []);
  let travel = 0;
  for (let e = 0; e < source.length; e++) {
    const path = [x[source[e]!]! + leaves[e]!, ...lanes[e]!, x[target[e]!]! + enters[e]!];
    for (let k = 1; k < path.length; k++) {
      gaps[rank[source[e]!]! + k - 1]!.push({ above: path[k - 1]!, below: path[k]! });
      travel += Math.abs(path[k]! - path[k - 1]!);
    }
  }
  let crossings = 0;
  for (const gap of gaps) {
    gap.forEach((a, i) => {
      for (let k = i + 1; k < gap.length; k++) {
        if ((a.above - gap[k]!.above) * (a.below - gap[k]!.below) < 0) crossings++;
      }
    });
  }
  return { crossings, travel };
}

function isChain({ width, source, target }: Piece): boolean {
  const out = new Uint8Array(width.length);
  const into = new Uint8Array(width.length);
  for (let e = 0; e < source.length; e++) {
    if (out[source[e]!] || into[target[e]!]) return false;
    out[source[e]!] = into[target[e]!] = 1;
  }
  return true;
}

/** Turns ranks and lanes into pixels. The gap below a rank grows where edges must move far sideways. */
function toPixels(
  piece: Piece,
  placement: Placement,
  block: Block,
  borders: { top: boolean; bottom: boolean },
  margin: { top: number; pad: number },
): Drawing {
  const { rank, lanes } = placement;
  const { width, height, source, target } = piece;
  const x = placement.x.slice();
  const size = x.length;
  const last = size - 1;
  if (size > 1) centreCuts(width, x, block);
  let count = 1;
  for (const r of rank) count = Math.max(count, r + 1);
  const tall = new Float64Array(count);
  for (let v = 0; v < size; v++) tall[rank[v]!] = Math.max(tall[rank[v]!]!, height[v]!);

  const paths = lanes.map((lane, e) => [
    x[source[e]!]! + piece.leaves[e]!,
    ...lane,
    x[target[e]!]! + piece.enters[e]!,
  ]);
  if (borders.top) cross(paths, piece, (e) => source[e] === 0, 0, 1);
  if (borders.bottom) cross(paths, piece, (e) => target[e] === last, -1, -2);
  const shift = new Float64Array(count);
  for (let e = 0; e < paths.length; e++) {
    const path = paths[e]!;
    const top = rank[source[e]!]!;
    for (let k = 1; k < path.length; k++) {
      shift[top + k - 1] = Math.max(shift[top + k - 1]!, Math.abs(path[k]! - path[k - 1]!));
    }
  }
  const middle = new Float64Array(count);
  let at = 0;
  for (let r = 0; r < count; r++) {
    middle[r] = at + tall[r]! / 2;
    let gap = GAP.rank;
    if (r === 0 && borders.top) gap = shift[r] ? Math.max(gap, margin.top) : margin.top;
    else if (r === count - 2 && borders.bottom && !shift[r]) gap = margin.pad;
    at += tall[r]! + gap + Math.min(28, shift[r]! / 8);
  }
  const y = Float64Array.from(rank, (r) => middle[r]!);
  const extent = { left: Infinity, top: Infinity, right: -Infinity, bottom: -Infinity };
  const include = (px: number, py: number, w: number, h: number): void => {
    extent.left = Math.min(extent.left, px - w);
    extent.right = Math.max(extent.right, px + w);
    extent.top = Math.min(extent.top, py - h);
    extent.bottom = Math.max(extent.bottom, py + h);
  };
  for (let v = 0; v < size; v++) include(x[v]!, y[v]!, width[v]! / 2, height[v]! / 2);
  const routes = paths.map((path, e) => {
    const [s, t] = [source[e]!, target[e]!];
    const route = [path[0]!, y[s]! + height[s]! / 2];
    for (let k = 0; k < path.length; k++) {
      const r = rank[s]! + k;
      if (k > 0) route.push(path[k]!, middle[r]! - tall[r]! / 2);
      if (k < path.length - 1) route.push(path[k]!, middle[r]! + tall[r]! / 2);
      include(path[k]!, middle[r]!, 0, 0);
    }
    route.push(path.at(-1)!, y[t]! - height[t]! / 2);
    return route;
  });
  return { x, y, routes, extent };
}

function centreCuts(width: ArrayLike<number>, x: Float64Array, { startsAtCut, endsAtCut }: Block): void {
  const last = x.length - 1;
  const from = startsAtCut ? 1 : 0;
  const to = endsAtCut ? last - 1 : last;
  let [left, right] = [Infinity, -Infinity];
  for (let v = from; v <= to; v++) {
    left = Math.min(left, x[v]! - width[v]! / 2);
    right = Math.max(right, x[v]! + width[v]! / 2);
  }
  const centre = left <= right ? (left + right) / 2 : x[0]!;
  if (startsAtCut) x[0] = centre;
  if (endsAtCut) x[last] = centre;
}

/** Lets every tensor cross a border of the frame at one point: straight above or below boxes, else between lanes. */
function cross(
  paths: number[][],
  { tensor }: Piece,
  crosses: (e: number) => boolean,
  end: 0 | -1,
  next: 1 | -2,
): void {
  const found = new Map<number, { sum: number; count: number }>();
  for (let e = 0; e < paths.length; e++) {
    if (!crosses(e)) continue;
    const mean = found.get(tensor[e]!) ?? { sum: 0, count: 0 };
    const weight = paths[e]!.length === 2 ? 1 : 1e-9;
    mean.sum += weight * paths[e]!.at(next)!;
    mean.count += weight;
    found.set(tensor[e]!, mean);
  }
  for (let e = 0; e < paths.length; e++) {
    if (!crosses(e)) continue;
    const { sum, count } = found.get(tensor[e]!)!;
    paths[e]![end === 0 ? 0 : paths[e]!.length - 1] = sum / count;
  }
}

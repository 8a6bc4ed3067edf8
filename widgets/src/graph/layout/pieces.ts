import { compact, layered } from "./layered";
import { GAP, type Piece, type Placement } from "./types";

/** A placed piece in pixels: centres, one point list per edge, and how far all that reaches. */
export interface Drawing {
  x: Float64Array;
  y: Float64Array;
  routes: number[][];
  extent: { left: number; top: number; right: number; bottom: number };
}

export function draw(
  piece: Piece,
  borders: { top: boolean; bottom: boolean },
  margin: { top: number; pad: number },
): Drawing {
  return toPixels(piece, place(piece), borders, margin);
}

function place(piece: Piece): Placement {
  if (piece.width.length === 1) return { rank: new Int32Array(1), x: new Float64Array(1), lanes: [] };
  return layered(piece, compact(piece));
}

/** Turns ranks and lanes into pixels. The gap below a rank grows where edges must move far sideways. */
function toPixels(
  piece: Piece,
  placement: Placement,
  borders: { top: boolean; bottom: boolean },
  margin: { top: number; pad: number },
): Drawing {
  const { rank, lanes } = placement;
  const { width, height, source, target } = piece;
  const x = placement.x.slice();
  const size = x.length;
  const last = size - 1;
  if (size > 1) centreEnds(width, x, piece);
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

/** The main line runs through the middle of all that stands beside it. */
function centreEnds(width: ArrayLike<number>, x: Float64Array, { top, bottom }: Piece): void {
  let [left, right] = [Infinity, -Infinity];
  for (let v = 0; v < x.length; v++) {
    if (v === top || v === bottom) continue;
    left = Math.min(left, x[v]! - width[v]! / 2);
    right = Math.max(right, x[v]! + width[v]! / 2);
  }
  const centre = left <= right ? (left + right) / 2 : x[0]!;
  if (top >= 0) x[top] = centre;
  if (bottom >= 0) x[bottom] = centre;
}

/** Lets every tensor cross a border of the frame at one point: straight above or below boxes, else between lanes. */
function cross(
  paths: number[][],
  { tensor }: Piece,
  crosses: (e: number) => boolean,
  end: 0 | -1,
  next: 1 | -2,
): void {
  const means = new Map<number, { sum: number; count: number }>();
  for (let e = 0; e < paths.length; e++) {
    if (!crosses(e)) continue;
    const mean = means.get(tensor[e]!) ?? { sum: 0, count: 0 };
    const weight = paths[e]!.length === 2 ? 1 : 1e-9;
    mean.sum += weight * paths[e]!.at(next)!;
    mean.count += weight;
    means.set(tensor[e]!, mean);
  }
  for (let e = 0; e < paths.length; e++) {
    if (!crosses(e)) continue;
    const { sum, count } = means.get(tensor[e]!)!;
    paths[e]![end === 0 ? 0 : paths[e]!.length - 1] = sum / count;
  }
}

// Lays out an operator graph: cycles are broken, far edges become tunnels, the rest is cut into blocks at the nodes
// that every path passes through, every distinct block is laid out once, and the copies are stacked.
import { Numbering } from "../numbering";
import { type Block, divide } from "./blocks";
import { backEdges, components, Digraph } from "./digraph";
import { fine } from "./fine";
import { layered } from "./layered";
import { GAP, type LayoutInput, type LayoutOutput, type Piece, type Placement } from "./types";

/** dagre's time grows fast with a block's size, so that large blocks and long sums go to the linear layout. */
const FINE_BLOCK = 150;
const FINE_TOTAL = 1500;

/** A placed piece in pixels: centres, and one point list per edge. */
interface Drawing {
  x: Float64Array;
  y: Float64Array;
  routes: number[][];
}

export function layout(input: LayoutInput): LayoutOutput {
  const size = input.width.length;
  const raw = new Digraph(size, input.source, input.target);
  const back = backEdges(raw);
  const parts = components(raw);
  const nodes: number[][] = Array.from({ length: parts.count }, () => []);
  const edges: number[][] = nodes.map(() => []);
  for (let v = 0; v < size; v++) nodes[parts.of[v]!]!.push(v);
  for (let e = 0; e < input.source.length; e++) {
    // An edge from a box to itself has no room in a layered drawing: it stays a tunnel.
    if (input.source[e] !== input.target[e]) edges[parts.of[input.source[e]!]!]!.push(e);
  }
  const drawing: Drawing = {
    x: new Float64Array(size),
    y: new Float64Array(size),
    routes: Array.from({ length: input.source.length }, () => []),
  };
  const studio = new Studio();
  const boxes = nodes.map((part, c) => component(input, part, edges[c]!, back, studio, drawing));
  pack(boxes, nodes, edges, drawing);
  return finish(input, drawing);
}

/** Lays out one connected component in place, with its top left corner at the origin; returns its size. */
function component(
  input: LayoutInput,
  nodes: number[],
  edges: number[],
  back: Uint8Array,
  studio: Studio,
  into: Drawing,
): { width: number; height: number } {
  const local = new Map(nodes.map((v, i) => [v, i]));
  const end = (e: number, a: Int32Array, b: Int32Array): number => local.get(back[e] ? b[e]! : a[e]!)!;
  const source = Int32Array.from(edges, (e) => end(e, input.source, input.target));
  const target = Int32Array.from(edges, (e) => end(e, input.target, input.source));
  const part: LayoutInput = {
    width: Float32Array.from(nodes, (v) => input.width[v]!),
    height: Float32Array.from(nodes, (v) => input.height[v]!),
    entry: Uint8Array.from(nodes, (v) => input.entry[v]!),
    source,
    target,
    tensor: Int32Array.from(edges, (e) => input.tensor[e]!),
  };
  for (const block of divide(part, source, target)) {
    const piece = pieceOf(part, block);
    const drawn = studio.draw(piece, block);
    const cut = nodes[block.nodes[0]!]!;
    const dx = block.startsAtCut ? into.x[cut]! - drawn.x[0]! : 0;
    const dy = block.startsAtCut ? into.y[cut]! - drawn.y[0]! : 0;
    block.nodes.forEach((v, i) => {
      if (block.startsAtCut && i === 0) return;
      into.x[nodes[v]!] = drawn.x[i]! + dx;
      into.y[nodes[v]!] = drawn.y[i]! + dy;
    });
    block.edges.forEach((e, k) => {
      const route = drawn.routes[k]!.map((at, i) => at + (i % 2 ? dy : dx));
      into.routes[edges[e]!] = back[edges[e]!] ? reversed(route) : route;
    });
  }
  return settle(input, nodes, edges, into);
}

function pieceOf(part: LayoutInput, block: Block): Piece {
  const local = new Map(block.nodes.map((v, i) => [v, i]));
  const source = block.edges.map((e) => local.get(part.source[e]!)!);
  const target = block.edges.map((e) => local.get(part.target[e]!)!);
  const last = block.nodes.length - 1;
  // Cuts stand alone on the first and last rank, so that neighbouring blocks never overlap beside them.
  const fed = new Set(target);
  const feeds = new Set(source);
  const guards: [number, number][] = [];
  for (let v = 0; v <= last; v++) {
    if (block.startsAtCut && v > 0 && !fed.has(v)) guards.push([0, v]);
    if (block.endsAtCut && v < last && !feeds.has(v)) guards.push([v, last]);
  }
  return {
    width: block.nodes.map((v) => part.width[v]!),
    height: block.nodes.map((v) => part.height[v]!),
    source,
    target,
    tensor: block.edges.map((e) => part.tensor[e]!),
    guards,
  };
}

/** Draws pieces, each distinct one once. */
class Studio {
  readonly #seen = new Map<string, Drawing>();
  #fineTotal = 0;

  draw(piece: Piece, block: Block): Drawing {
    const numbers = new Numbering<number>();
    const tensors = piece.tensor.map((tensor) => numbers.of(tensor));
    const key = JSON.stringify([
      piece.width,
      piece.height,
      piece.source,
      piece.target,
      tensors,
      block.startsAtCut,
      block.endsAtCut,
    ]);
    let drawing = this.#seen.get(key);
    if (!drawing) {
      drawing = toPixels(piece, this.#place(piece), block);
      this.#seen.set(key, drawing);
    }
    return drawing;
  }

  #place(piece: Piece): Placement {
    const size = piece.width.length;
    if (size === 1) return { rank: new Int32Array(1), x: new Float64Array(1), lanes: [] };
    if (size <= FINE_BLOCK && this.#fineTotal + size <= FINE_TOTAL) {
      this.#fineTotal += size;
      return fine(piece);
    }
    return layered(piece);
  }
}

/** Turns ranks and lanes into pixels. The gap below a rank grows where edges must move far sideways. */
function toPixels(piece: Piece, placement: Placement, block: Block): Drawing {
  const { rank, lanes } = placement;
  const x = placement.x.slice();
  const size = x.length;
  const last = size - 1;
  if (size > 1) centreCuts(piece, x, block);
  const count = rank.reduce((a, b) => Math.max(a, b), 0) + 1;
  const tall = new Float64Array(count);
  rank.forEach((r, v) => {
    tall[r] = Math.max(tall[r]!, piece.height[v]!);
  });
  const paths = lanes.map((lane, e) => [x[piece.source[e]!]!, ...lane, x[piece.target[e]!]!]);
  const shift = new Float64Array(count);
  paths.forEach((path, e) => {
    const top = rank[piece.source[e]!]!;
    for (let k = 1; k < path.length; k++) {
      shift[top + k - 1] = Math.max(shift[top + k - 1]!, Math.abs(path[k]! - path[k - 1]!));
    }
  });
  const middle = new Float64Array(count);
  let y = 0;
  for (let r = 0; r < count; r++) {
    middle[r] = y + tall[r]! / 2;
    y += tall[r]! + GAP.rank + Math.min(28, shift[r]! / 8);
  }
  const ys = Float64Array.from(rank, (r) => middle[r]!);
  const routes = paths.map((path, e) => {
    const s = piece.source[e]!;
    const t = piece.target[e]!;
    const route = [path[0]!, ys[s]! + piece.height[s]! / 2];
    path.forEach((at, k) => {
      const r = rank[s]! + k;
      const above = middle[r]! - tall[r]! / 2;
      const below = middle[r]! + tall[r]! / 2;
      if (k > 0) route.push(at, above);
      if (k < path.length - 1) route.push(at, below);
    });
    route.push(path.at(-1)!, ys[t]! - piece.height[t]! / 2);
    return straightened(route);
  });
  return { x, y: ys, routes };

  function centreCuts(of: Piece, at: Float64Array, { startsAtCut, endsAtCut }: Block): void {
    const from = startsAtCut ? 1 : 0;
    const to = endsAtCut ? last - 1 : last;
    let left = Number.POSITIVE_INFINITY;
    let right = Number.NEGATIVE_INFINITY;
    for (let v = from; v <= to; v++) {
      left = Math.min(left, at[v]! - of.width[v]! / 2);
      right = Math.max(right, at[v]! + of.width[v]! / 2);
    }
    const centre = left <= right ? (left + right) / 2 : at[0]!;
    if (startsAtCut) at[0] = centre;
    if (endsAtCut) at[last] = centre;
  }
}

/** Drops repeated points and points in the middle of a vertical run. */
function straightened(route: number[]): number[] {
  const out: number[] = [];
  for (let k = 0; k < route.length; k += 2) {
    const x = route[k]!;
    const y = route[k + 1]!;
    const n = out.length;
    if (n >= 2 && out[n - 2] === x && Math.abs(out[n - 1]! - y) < 1e-6) continue;
    if (n >= 4 && out[n - 2] === x && out[n - 4] === x) out[n - 1] = y;
    else out.push(x, y);
  }
  if (out.length === 2) out.push(out[0]!, out[1]!);
  return out;
}

function reversed(route: number[]): number[] {
  const out: number[] = [];
  for (let k = route.length - 2; k >= 0; k -= 2) out.push(route[k]!, route[k + 1]!);
  return out;
}

/** Moves a component so that its bounding box starts at the origin; returns the size of that box. */
function settle(
  input: LayoutInput,
  nodes: number[],
  edges: number[],
  into: Drawing,
): { width: number; height: number } {
  let left = Number.POSITIVE_INFINITY;
  let top = Number.POSITIVE_INFINITY;
  let right = Number.NEGATIVE_INFINITY;
  let bottom = Number.NEGATIVE_INFINITY;
  const include = (x: number, y: number, w: number, h: number): void => {
    left = Math.min(left, x - w / 2);
    right = Math.max(right, x + w / 2);
    top = Math.min(top, y - h / 2);
    bottom = Math.max(bottom, y + h / 2);
  };
  for (const v of nodes) include(into.x[v]!, into.y[v]!, input.width[v]!, input.height[v]!);
  for (const e of edges) {
    const route = into.routes[e]!;
    for (let k = 0; k < route.length; k += 2) include(route[k]!, route[k + 1]!, 0, 0);
  }
  move(nodes, edges, into, -left, -top);
  return { width: right - left, height: bottom - top };
}

function move(nodes: number[], edges: number[], into: Drawing, dx: number, dy: number): void {
  for (const v of nodes) {
    into.x[v]! += dx;
    into.y[v]! += dy;
  }
  for (const e of edges) into.routes[e] = into.routes[e]!.map((at, i) => at + (i % 2 ? dy : dx));
}

/** Puts components in rows: below the one that dominates, otherwise about as a square of all. */
function pack(
  boxes: { width: number; height: number }[],
  nodes: number[][],
  edges: number[][],
  into: Drawing,
): void {
  const gap = 2 * GAP.node;
  const areas = boxes.map((box) => (box.width + gap) * (box.height + gap));
  const area = areas.reduce((sum, part) => sum + part, 0);
  const widest = boxes.reduce((most, box) => Math.max(most, box.width), 0);
  // Loose boxes beside a graph would only push it aside: they stand below it.
  const dominated = areas.some((part) => part > area / 2);
  const limit = dominated ? widest : Math.max(widest, Math.sqrt(area));
  let x = 0;
  let y = 0;
  let row = 0;
  boxes.forEach((box, c) => {
    if (x > 0 && x + box.width > limit) {
      x = 0;
      y += row + gap;
      row = 0;
    }
    move(nodes[c]!, edges[c]!, into, x, y);
    x += box.width + gap;
    row = Math.max(row, box.height);
  });
}

function finish(input: LayoutInput, drawing: Drawing): LayoutOutput {
  const offsets = new Int32Array(drawing.routes.length + 1);
  drawing.routes.forEach((route, e) => {
    offsets[e + 1] = offsets[e]! + route.length / 2;
  });
  const points = new Float32Array(2 * (offsets.at(-1) ?? 0));
  drawing.routes.forEach((route, e) => {
    points.set(route, 2 * offsets[e]!);
  });
  let width = 0;
  let height = 0;
  for (let v = 0; v < drawing.x.length; v++) {
    width = Math.max(width, drawing.x[v]! + input.width[v]! / 2);
    height = Math.max(height, drawing.y[v]! + input.height[v]! / 2);
  }
  for (let k = 0; k < points.length; k += 2) {
    width = Math.max(width, points[k]!);
    height = Math.max(height, points[k + 1]!);
  }
  return { x: Float32Array.from(drawing.x), y: Float32Array.from(drawing.y), points, offsets, width, height };
}

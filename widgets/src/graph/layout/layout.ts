// Lays out an operator graph. Frames are laid out from the inside outwards, each as a graph of its own and then as one
// box of the graph around it. In each graph cycles are broken, the rest is cut into blocks at the nodes that every path
// passes through, every distinct block is laid out once, and the copies are stacked.
import { type Block, divide } from "./blocks";
import { components, Digraph } from "./digraph";
import { Memo } from "./memo";
import { type Drawing, draw } from "./pieces";
import { pointsOf, type Sheet } from "./points";
import { FRAME, GAP, type LayoutInput, type LayoutOutput, type Piece } from "./types";
import { BOTTOM, type Segments, segments, TOP } from "./wires";

/** The graph in one frame, in local positions: its boxes, then its borders where wires cross them. */
interface Level {
  boxes: number;
  top: number;
  bottom: number;
  width: Float64Array;
  height: Float64Array;
  entry: Uint8Array;
  source: Int32Array;
  target: Int32Array;
  tensor: Int32Array;
  leaves: Float64Array;
  enters: Float64Array;
}

/** What is left free inside the border of a frame. */
interface Margin {
  top: number;
  left: number;
  pad: number;
}

export function layout(input: LayoutInput): LayoutOutput {
  const size = input.width.length;
  const { parent, across } = input;
  // From left to right is from top to bottom with the page turned.
  const width = Float64Array.from(across ? input.height : input.width);
  const height = Float64Array.from(across ? input.width : input.height);
  const margin: Margin = {
    top: across ? FRAME.pad : FRAME.head + FRAME.gap,
    left: across ? FRAME.head + FRAME.gap : FRAME.pad,
    pad: FRAME.pad,
  };
  const depth = depths(parent);
  const wires = segments(input, depth);
  const boxesIn = new Digraph(
    size + 1,
    parent.map((p) => (p < 0 ? size : p)),
    [],
  );
  const wiresIn = new Digraph(size + 1, wires.level, []);
  const frames = Array.from({ length: size }, (_, v) => v).filter((v) => boxesIn.feeds(v));
  frames.sort((a, b) => depth[b]! - depth[a]!);

  const studio = new LayoutBuilder(margin);
  const at = new Int32Array(size);
  // Where wires cross the border of a frame, from its middle: by the segment outside for those that enter.
  const gate = { into: new Float64Array(wires.level.length), outOf: new Float64Array(wires.level.length) };
  const x = new Float64Array(size);
  const y = new Float64Array(size);
  const sheets: (Sheet | undefined)[] = [];
  const line = new Int32Array(wires.level.length);
  for (const f of [...frames, size]) {
    const members = boxesIn.out(f);
    const inside = wiresIn.out(f);
    const level = levelOf(input, members, inside, wires, width, height, at, gate, boxesIn);
    const sheet = studio.level(level, f === size ? null : { width: width[f]!, height: height[f]! });
    sheets[f] = sheet;
    for (let i = 0; i < members.length; i++) {
      x[members[i]!] = sheet.x[i]!;
      y[members[i]!] = sheet.y[i]!;
    }
    for (let k = 0; k < inside.length; k++) {
      const g = inside[k]!;
      line[g] = k;
      const route = sheet.routes[k]!;
      const [upper, lower, up] = [wires.upper[g]!, wires.lower[g]!, wires.upward[g]!];
      if (upper >= 0 && lower >= 0) continue;
      const point = (upper === TOP ? route[0]! : route.at(-2)!) + sheet.dx[k]! - sheet.width / 2;
      // A wire enters through the upper border, or through the lower one when it runs upward.
      if ((upper === TOP) === !up) gate.into[wires.before[g]!] = point;
      else gate.outOf[g] = point;
    }
    if (f === size) continue;
    width[f] = sheet.width;
    height[f] = sheet.height;
  }

  // From the outside inwards, every frame's content moves to where the frame stands.
  const left = new Float64Array(size + 1);
  const above = new Float64Array(size + 1);
  for (const f of [size, ...frames.reverse()]) {
    if (f < size) {
      left[f] = x[f]! - width[f]! / 2;
      above[f] = y[f]! - height[f]! / 2;
    }
    for (const v of boxesIn.out(f)) {
      x[v]! += left[f]!;
      y[v]! += above[f]!;
    }
  }
  const [points, offsets] = pointsOf(wires, sheets as Sheet[], line, left, above, across);
  const page = sheets[size]!;
  return {
    x: Float32Array.from(across ? y : x),
    y: Float32Array.from(across ? x : y),
    boxWidth: Float32Array.from(across ? height : width),
    boxHeight: Float32Array.from(across ? width : height),
    points,
    offsets,
    width: across ? page.height : page.width,
    height: across ? page.width : page.height,
  };
}

function depths(parent: Int32Array): Int32Array {
  const depth = new Int32Array(parent.length).fill(-1);
  const path: number[] = [];
  for (let v = 0; v < parent.length; v++) {
    let at = v;
    for (; at >= 0 && depth[at]! < 0; at = parent[at]!) path.push(at);
    let from = at < 0 ? -1 : depth[at]!;
    while (path.length) depth[path.pop()!] = ++from;
  }
  return depth;
}

function levelOf(
  input: LayoutInput,
  members: Int32Array,
  inside: Int32Array,
  wires: Segments,
  width: Float64Array,
  height: Float64Array,
  at: Int32Array,
  gate: { into: Float64Array; outOf: Float64Array },
  boxesIn: Digraph,
): Level {
  const boxes = members.length;
  let [top, bottom, size] = [-1, -1, boxes];
  for (const g of inside) {
    if (top < 0 && wires.upper[g] === TOP) top = size++;
    if (bottom < 0 && wires.lower[g] === BOTTOM) bottom = size++;
  }
  const level: Level = {
    boxes,
    top,
    bottom,
    width: new Float64Array(size),
    height: new Float64Array(size),
    entry: new Uint8Array(size),
    source: new Int32Array(inside.length),
    target: new Int32Array(inside.length),
    tensor: new Int32Array(inside.length),
    leaves: new Float64Array(inside.length),
    enters: new Float64Array(inside.length),
  };
  for (let i = 0; i < boxes; i++) {
    const v = members[i]!;
    at[v] = i;
    level.width[i] = width[v]!;
    level.height[i] = height[v]!;
    level.entry[i] = input.entry[v]!;
  }
  const isFrame = (v: number): boolean => v >= 0 && boxesIn.feeds(v) > 0;
  for (let k = 0; k < inside.length; k++) {
    const g = inside[k]!;
    const [upper, lower, before] = [wires.upper[g]!, wires.lower[g]!, wires.before[g]!];
    level.source[k] = upper === TOP ? top : at[upper]!;
    level.target[k] = lower === BOTTOM ? bottom : at[lower]!;
    level.tensor[k] = wires.lane[g]!;
    const [from, to] = wires.upward[g] ? [lower, upper] : [upper, lower];
    const leaving = isFrame(from) && before >= 0 ? gate.outOf[before]! : 0;
    const entering = isFrame(to) ? gate.into[g]! : 0;
    level.leaves[k] = wires.upward[g] ? entering : leaving;
    level.enters[k] = wires.upward[g] ? leaving : entering;
  }
  return level;
}

/** Lays levels and pieces out, each distinct one once. */
class LayoutBuilder {
  readonly #margin: Margin;
  readonly #sheets = new Memo<Sheet>();
  readonly #drawings = new Memo<Drawing>();
  /** Positions of nodes in the component or block at hand, and of tensors in its edges. */
  #local = new Int32Array(0);
  readonly #number = new Map<number, number>();

  constructor(margin: Margin) {
    this.#margin = margin;
  }

  /** Lays out a level in the frame of at least this size, or the whole page. */
  level(level: Level, frame: { width: number; height: number } | null): Sheet {
    if (!frame) return this.#place(level, null);
    const key = this.#sheets;
    key.start(level.boxes, level.top, level.bottom, frame.width, frame.height);
    key.add(level.width, level.height, level.entry, level.source, level.target, this.#tensors(level.tensor));
    key.add(level.leaves, level.enters);
    return this.#sheets.get(() => this.#place(level, frame));
  }

  /** Tensors numbered in the order of first sight, so that equal graphs look equal. */
  #tensors(of: ArrayLike<number>): Int32Array {
    this.#number.clear();
    const numbers = new Int32Array(of.length);
    for (let k = 0; k < of.length; k++) numbers[k] = this.#numberOf(of[k]!);
    return numbers;
  }

  #numberOf(tensor: number): number {
    let at = this.#number.get(tensor);
    if (at === undefined) {
      at = this.#number.size;
      this.#number.set(tensor, at);
    }
    return at;
  }

  #place(level: Level, frame: { width: number; height: number } | null): Sheet {
    const size = level.width.length;
    const sheet: Sheet = {
      width: 0,
      height: 0,
      x: new Float64Array(size),
      y: new Float64Array(size),
      routes: new Array(level.source.length),
      dx: new Float64Array(level.source.length),
      dy: new Float64Array(level.source.length),
    };
    const parts = partsOf(level);
    const extents = parts.map((part) => this.#component(level, part, sheet));
    pack(parts, extents, sheet, level.boxes < size, level.top < 0 ? 0 : this.#margin.top);
    this.#settle(level, sheet, parts, extents, frame);
    return sheet;
  }

  /** Lays out one connected component; returns its extent. */
  #component(level: Level, part: Part, sheet: Sheet): Extent {
    const { nodes, edges } = part;
    if (this.#local.length < level.width.length) this.#local = new Int32Array(level.width.length);
    const local = this.#local;
    for (let i = 0; i < nodes.length; i++) local[nodes[i]!] = i;
    const source = new Int32Array(edges.length);
    const target = new Int32Array(edges.length);
    for (let k = 0; k < edges.length; k++) {
      source[k] = local[level.source[edges[k]!]!]!;
      target[k] = local[level.target[edges[k]!]!]!;
    }
    const width = picked(level.width, nodes);
    const entry = new Uint8Array(nodes.length);
    for (let i = 0; i < nodes.length; i++) entry[i] = level.entry[nodes[i]!]!;
    const borders = {
      top: part.bordered && level.top >= 0 ? local[level.top]! : -1,
      bottom: part.bordered && level.bottom >= 0 ? local[level.bottom]! : -1,
    };
    // What does not depend on the border hangs as loose as what does not depend on an input of the whole graph.
    if (borders.top >= 0) entry[borders.top] = 1;
    const extent = { left: Infinity, top: Infinity, right: -Infinity, bottom: -Infinity };
    const blocks = divide({ width, entry }, source, target, borders, new Uint8Array(edges.length));
    blocks.forEach((block, b) => {
      const boxes = new Int32Array(block.nodes.length);
      for (let i = 0; i < boxes.length; i++) boxes[i] = nodes[block.nodes[i]!]!;
      const lines = block.edges.map((e) => edges[e]!);
      const drawing = this.#draw(level, block, boxes, lines);
      const dx = b ? sheet.x[boxes[0]!]! - drawing.x[0]! : 0;
      const dy = b ? sheet.y[boxes[0]!]! - drawing.y[0]! : 0;
      for (let i = b ? 1 : 0; i < boxes.length; i++) {
        sheet.x[boxes[i]!] = drawing.x[i]! + dx;
        sheet.y[boxes[i]!] = drawing.y[i]! + dy;
      }
      for (let k = 0; k < lines.length; k++) {
        sheet.routes[lines[k]!] = drawing.routes[k]!;
        sheet.dx[lines[k]!] = dx;
        sheet.dy[lines[k]!] = dy;
      }
      const { left, top, right, bottom } = drawing.extent;
      extent.left = Math.min(extent.left, left + dx);
      extent.top = Math.min(extent.top, top + dy);
      extent.right = Math.max(extent.right, right + dx);
      extent.bottom = Math.max(extent.bottom, bottom + dy);
    });
    return extent;
  }

  #piece(level: Level, block: Block, boxes: Int32Array, lines: number[]): Piece {
    const local = this.#local;
    const last = boxes.length - 1;
    const source = new Int32Array(lines.length);
    const target = new Int32Array(lines.length);
    const fed = new Uint8Array(boxes.length);
    const feeds = new Uint8Array(boxes.length);
    for (let k = 0; k < lines.length; k++) {
      source[k] = local[level.source[lines[k]!]!]!;
      target[k] = local[level.target[lines[k]!]!]!;
      feeds[source[k]!] = 1;
      fed[target[k]!] = 1;
    }
    // Cuts stand alone on the first and last rank, so that neighbouring blocks never overlap beside them.
    const guards: [number, number][] = [];
    for (let v = 0; v <= last; v++) {
      if (block.startsAtCut && v > 0 && !fed[v]) guards.push([0, v]);
      if (block.endsAtCut && v < last && !feeds[v]) guards.push([v, last]);
    }
    return {
      width: picked(level.width, boxes),
      height: picked(level.height, boxes),
      source,
      target,
      tensor: this.#tensors(lines.map((e) => level.tensor[e]!)),
      leaves: picked(level.leaves, lines),
      enters: picked(level.enters, lines),
      guards,
      top: block.startsAtCut ? 0 : only(fed),
      bottom: block.endsAtCut ? last : only(feeds),
    };
  }

  /** The drawing of a block. Most are known by now: only for a new one its piece is made. */
  #draw(level: Level, block: Block, boxes: Int32Array, lines: number[]): Drawing {
    const borders = { top: boxes[0] === level.top, bottom: boxes.at(-1) === level.bottom };
    const local = this.#local;
    const key = this.#drawings;
    key.start(boxes.length, lines.length, Number(block.startsAtCut), Number(block.endsAtCut));
    key.push(Number(borders.top));
    key.push(Number(borders.bottom));
    for (let i = 0; i < boxes.length; i++) {
      const v = boxes[i]!;
      local[v] = i;
      key.push(level.width[v]!);
      key.push(level.height[v]!);
    }
    this.#number.clear();
    for (let k = 0; k < lines.length; k++) {
      const e = lines[k]!;
      key.push(local[level.source[e]!]!);
      key.push(local[level.target[e]!]!);
      key.push(this.#numberOf(level.tensor[e]!));
      key.push(level.leaves[e]!);
      key.push(level.enters[e]!);
    }
    return key.get(() => draw(this.#piece(level, block, boxes, lines), borders, this.#margin));
  }

  /** Moves what is drawn to the top left corner, inside the margin of the frame. */
  #settle(
    level: Level,
    sheet: Sheet,
    parts: Part[],
    extents: Extent[],
    frame: { width: number; height: number } | null,
  ): void {
    const all = extents.reduce(
      (a, b) => ({
        left: Math.min(a.left, b.left),
        top: Math.min(a.top, b.top),
        right: Math.max(a.right, b.right),
        bottom: Math.max(a.bottom, b.bottom),
      }),
      { left: 0, top: 0, right: 0, bottom: 0 },
    );
    sheet.width = all.right;
    sheet.height = all.bottom;
    if (!frame) return;
    const { top, left, pad } = this.#margin;
    sheet.width = Math.max(frame.width, all.right + left + pad);
    // The borders are nodes above and below the content, at the distance of the margin.
    const bordered = parts[0]?.bordered;
    const head = bordered && level.top >= 0 ? 0 : top;
    const foot = bordered && level.bottom >= 0 ? extents[0]!.bottom : all.bottom + pad;
    sheet.height = Math.max(frame.height, head + Math.max(foot, all.bottom + pad));
    const dx = left + (sheet.width - all.right - left - pad) / 2;
    for (let v = 0; v < sheet.x.length; v++) {
      sheet.x[v]! += dx;
      sheet.y[v]! += head;
    }
    for (let e = 0; e < sheet.routes.length; e++) {
      sheet.dx[e]! += dx;
      sheet.dy[e]! += head;
    }
  }
}

const only = (of: Uint8Array): number => {
  const at = of.indexOf(0);
  return of.indexOf(0, at + 1) < 0 ? at : -1;
};

function picked(of: Float64Array, places: ArrayLike<number>): Float64Array {
  const values = new Float64Array(places.length);
  for (let k = 0; k < places.length; k++) values[k] = of[places[k]!]!;
  return values;
}

interface Extent {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

/** A connected component. What hangs on the borders of the frame is one, and stands first. */
interface Part {
  nodes: number[];
  edges: number[];
  bordered: boolean;
}

function partsOf(level: Level): Part[] {
  const size = level.width.length;
  const { of, count } = components(new Digraph(size, level.source, level.target));
  const borders = size > level.boxes;
  const hangs = new Uint8Array(count);
  for (let v = level.boxes; v < size; v++) hangs[of[v]!] = 1;
  const partOf = new Int32Array(count).fill(-1);
  const parts: Part[] = borders ? [{ nodes: [], edges: [], bordered: true }] : [];
  for (let v = 0; v < size; v++) {
    const c = of[v]!;
    if (hangs[c]) partOf[c] = 0;
    if (partOf[c]! < 0) partOf[c] = parts.push({ nodes: [], edges: [], bordered: false }) - 1;
    parts[partOf[c]!]!.nodes.push(v);
  }
  for (let e = 0; e < level.source.length; e++) parts[partOf[of[level.source[e]!]!]!]!.edges.push(e);
  return parts;
}

/**
 * Puts components in rows: below the one that dominates, otherwise about as a square of all. What hangs on the borders
 * of a frame has the frame's whole height for itself, and the rows stand beside it.
 */
function pack(parts: Part[], extents: Extent[], sheet: Sheet, bordered: boolean, head: number): void {
  const gap = 2 * GAP.node;
  const place = (p: number, x: number, y: number): void => {
    const { left, top, right, bottom } = extents[p]!;
    const [dx, dy] = [x - left, y - top];
    for (const v of parts[p]!.nodes) {
      sheet.x[v]! += dx;
      sheet.y[v]! += dy;
    }
    for (const e of parts[p]!.edges) {
      sheet.dx[e]! += dx;
      sheet.dy[e]! += dy;
    }
    extents[p] = { left: x, top: y, right: right + dx, bottom: bottom + dy };
  };
  const widthOf = (p: number): number => extents[p]!.right - extents[p]!.left;
  const heightOf = (p: number): number => extents[p]!.bottom - extents[p]!.top;
  const first = Number(bordered);
  if (bordered) place(0, 0, 0);
  let area = 0;
  let largest = 0;
  let widest = 0;
  for (let p = first; p < parts.length; p++) {
    const own = (widthOf(p) + gap) * (heightOf(p) + gap);
    area += own;
    largest = Math.max(largest, own);
    widest = Math.max(widest, widthOf(p));
  }
  const limit = largest > area / 2 ? widest : Math.max(widest, Math.sqrt(area));
  const start = bordered ? widthOf(0) + gap : 0;
  let [x, y, row] = [0, head, 0];
  for (let p = first; p < parts.length; p++) {
    if (x > 0 && x + widthOf(p) > limit) {
      x = 0;
      y += row + gap;
      row = 0;
    }
    const [w, h] = [widthOf(p), heightOf(p)];
    place(p, start + x, y);
    x += w + gap;
    row = Math.max(row, h);
  }
}

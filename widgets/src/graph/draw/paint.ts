import type { Look } from "../overlay";
import { type Brush, type Detail, paintBox, paintHead } from "./box";
import type { Rect } from "./camera";
import { FONT } from "./measure";
import type { Pen } from "./pen";
import { around, isTunnel, rectOf, type Scene, stubAt, trace } from "./scene";
import type { Theme } from "./theme";

export interface Marks {
  selected: ReadonlySet<number>;
  hovered: ReadonlySet<number>;
  /** Selected or hovered only through inferred pairs. */
  inferred: ReadonlySet<number>;
  hits: ReadonlySet<number>;
  hit: number;
  clear: ReadonlySet<number> | null;
  groups: number[][];
  wire: number;
}

export const NO_MARKS: Marks = {
  selected: new Set(),
  hovered: new Set(),
  inferred: new Set(),
  hits: new Set(),
  hit: -1,
  clear: null,
  groups: [],
  wire: -1,
};

export const SHOW = { shape: 0.17, title: 0.42, line: 0.5, label: 0.68, everyLabel: 1.35 };
export const PALE = 0.2;
const HALO = 9;

/** Paints what lies in the view, in world pixels; `scale` decides how much of it can be read. */
export function paint(
  brush: Brush,
  scene: Scene,
  look: Look,
  view: Rect,
  scale: number,
  marks: Marks = NO_MARKS,
): void {
  const detail = detailAt(scale);
  const inView = boxesInView(scene, view, look);
  const frame = (i: number): boolean => scene.figures[i]!.shape === "frame";
  for (const i of inView) if (frame(i)) one(brush, marks, i, () => box(brush, scene, look, i, detail));
  halos(brush, scene, marks, scale);
  wires(brush, scene, view, scale, marks);
  for (const i of inView)
    one(brush, marks, i, () =>
      frame(i)
        ? paintHead(brush, scene.figures[i]!, rectOf(scene, i), look, i, detail)
        : box(brush, scene, look, i, detail, inView),
    );
  outlines(brush, scene, marks, scale);
  if (scale >= SHOW.label) labels(brush, scene, view, marks, scale);
}

export const detailAt = (scale: number): Detail => ({
  titles: scale >= SHOW.title,
  lines: scale >= SHOW.line,
});

/** Paints something of a box, pale where the marks leave it out. */
function one({ pen }: Brush, { clear }: Marks, i: number, what: () => void): void {
  const before = pen.globalAlpha;
  if (clear && !clear.has(i)) pen.globalAlpha = before * PALE;
  what();
  pen.globalAlpha = before;
}

function box(
  brush: Brush,
  scene: Scene,
  look: Look,
  i: number,
  detail: Detail,
  among: readonly number[] = [],
): void {
  const figure = scene.figures[i]!;
  const room = detail.lines && figure.reason ? roomBeside(scene, i, among) : 0;
  paintBox(brush, figure, rectOf(scene, i), look, i, detail, room);
}

/** How far it is from the right of a box to the next of these boxes, for words that stand there. */
export function roomBeside(
  { x, y, width, height, figures }: Scene,
  i: number,
  among: readonly number[],
): number {
  const right = x[i]! + width[i]! / 2;
  let room = Infinity;
  for (const k of among) {
    if (k === i || figures[k]!.shape === "frame") continue;
    const left = x[k]! - width[k]! / 2;
    const level = Math.abs(y[k]! - y[i]!) < (height[k]! + height[i]!) / 2;
    if (level && left >= right) room = Math.min(room, left - right);
  }
  return room;
}

/** A badge stands out above its box, the reason of a node without a layer beside it. */
const OVERHANG = { x: 80, y: 10 };

export function boxesInView(scene: Scene, view: Rect, look?: Look): number[] {
  const { x, y, width, height } = scene;
  const dx = look ? OVERHANG.x : 0;
  const dy = look?.badge ? OVERHANG.y : 0;
  const right = view.x + view.width;
  const bottom = view.y + view.height;
  const list: number[] = [];
  for (let i = 0; i < x.length; i++) {
    const halfWidth = width[i]! / 2;
    const halfHeight = height[i]! / 2;
    if (x[i]! + halfWidth + dx < view.x || x[i]! - halfWidth > right) continue;
    if (y[i]! + halfHeight < view.y || y[i]! - halfHeight - dy > bottom) continue;
    list.push(i);
  }
  return list;
}

export function seenWires({ extents, wires: all }: Scene, view: Rect): number[] {
  const right = view.x + view.width;
  const bottom = view.y + view.height;
  const list: number[] = [];
  for (let e = 0; e < all.length; e++) {
    if (extents[4 * e + 2]! < view.x || extents[4 * e]! > right) continue;
    if (extents[4 * e + 3]! < view.y || extents[4 * e + 1]! > bottom) continue;
    list.push(e);
  }
  return list;
}

const framed = new WeakMap<readonly number[], Rect | null>();
const MOST_HALOS = 300;

function haloOf(scene: Scene, group: readonly number[]): Rect | null {
  let rect = framed.get(group);
  if (rect === undefined) {
    rect = around(scene, group);
    if (rect && group.length > 1 && strangers(scene, rect, new Set(group))) rect = null;
    framed.set(group, rect);
  }
  return rect;
}

/** One frame around the nodes of one layer, where no other node is between them. */
export function halos({ pen, theme }: Brush, scene: Scene, marks: Marks, scale: number): void {
  if (marks.groups.length > MOST_HALOS) return;
  for (const group of marks.groups) {
    const rect = haloOf(scene, group);
    if (!rect) continue;
    pen.beginPath();
    pen.roundRect(rect.x - HALO, rect.y - HALO, rect.width + 2 * HALO, rect.height + 2 * HALO, HALO);
    pen.fillStyle = theme.selectTint;
    pen.fill();
    if (group.length < 2) continue;
    pen.lineWidth = Math.max(1.2, 1.2 / scale);
    pen.strokeStyle = theme.select;
    if (group.some((i) => marks.inferred.has(i))) pen.setLineDash([2, 4]);
    pen.stroke();
    pen.setLineDash([]);
  }
}

function strangers(scene: Scene, rect: Rect, group: ReadonlySet<number>): boolean {
  return boxesInView(scene, rect).some((i) => !group.has(i) && scene.figures[i]!.shape !== "frame");
}

export function outlines({ pen, theme }: Brush, scene: Scene, marks: Marks, scale: number): void {
  const ring = (i: number, colour: string, width: number, grow: number): void => {
    const r = rectOf(scene, i);
    const radius = scene.figures[i]!.shape === "pill" ? r.height / 2 : 5;
    pen.beginPath();
    pen.roundRect(r.x - grow, r.y - grow, r.width + 2 * grow, r.height + 2 * grow, radius + grow);
    pen.lineWidth = Math.max(width, width / scale);
    pen.strokeStyle = colour;
    if (marks.inferred.has(i)) pen.setLineDash([2.5, 3]);
    pen.stroke();
    pen.setLineDash([]);
  };
  for (const i of marks.hits) ring(i, theme.hover, i === marks.hit ? 3 : 1.5, 2.5);
  for (const i of marks.hovered) if (!marks.selected.has(i)) ring(i, theme.hover, 2, 0.5);
  for (const i of marks.selected) ring(i, theme.select, 2.2, 0.5);
}

function weightOf(scene: Scene, e: number, marks: Marks): "strong" | "plain" | "pale" {
  const { source, target } = scene.wires[e]!;
  if (e === marks.wire || marks.hovered.has(source) || marks.hovered.has(target)) return "strong";
  return isPale(scene, e, marks.clear) ? "pale" : "plain";
}

export function isPale({ wires }: Scene, e: number, clear: Marks["clear"]): boolean {
  const { source, target } = wires[e]!;
  return clear !== null && !(clear.has(source) && clear.has(target));
}

function wires(brush: Brush, scene: Scene, view: Rect, scale: number, marks: Marks): void {
  const { pen, theme } = brush;
  const all = { strong: [] as number[], plain: [] as number[], pale: [] as number[] };
  for (const e of seenWires(scene, view)) all[weightOf(scene, e, marks)].push(e);
  pen.lineJoin = "round";
  const alpha = pen.globalAlpha;
  pen.globalAlpha = alpha * PALE;
  strokes(pen, scene, all.pale, theme.edge, Math.max(1.1, 0.7 / scale));
  pen.globalAlpha = alpha;
  strokes(pen, scene, all.plain, theme.edge, Math.max(1.1, 0.7 / scale));
  strokes(pen, scene, all.strong, theme.hover, Math.max(1.8, 1.4 / scale));
}

/** Wires of one colour with their arrowheads, and tunnels with their stubs. */
export function strokes(
  pen: Pen,
  scene: Scene,
  list: readonly number[],
  colour: string,
  width: number,
  heads = true,
): void {
  if (!list.length) return;
  pen.lineWidth = width;
  pen.strokeStyle = colour;
  pen.beginPath();
  for (const e of list) {
    if (isTunnel(scene, e)) stub(pen, scene, e);
    else trace(pen, scene, e);
  }
  pen.stroke();
  if (!heads) return;
  pen.beginPath();
  for (const e of list) if (!isTunnel(scene, e)) arrowhead(pen, scene, e);
  pen.fillStyle = colour;
  pen.fill();
}

function arrowhead(pen: Pen, { points, offsets, across }: Scene, e: number): void {
  const end = 2 * offsets[e + 1]!;
  const x = points[end - 2]!;
  const y = points[end - 1]!;
  // A wire that closes a loop arrives from the other side.
  const sign = points[across ? end - 4 : end - 3]! <= (across ? x : y) ? 1 : -1;
  const [dx, dy] = across ? [sign * 6.5, 3.4] : [3.4, sign * 6.5];
  pen.moveTo(x, y);
  pen.lineTo(x - dx, y - dy);
  pen.lineTo(across ? x - dx : x + dx, across ? y + dy : y - dy);
  pen.closePath();
}

const STUB = 9;

function stub(pen: Pen, scene: Scene, e: number): void {
  const { source, target } = scene.wires[e]!;
  for (const leaving of [true, false]) {
    const [x, y] = stubAt(scene, leaving ? source : target, leaving);
    const length = leaving ? STUB : -STUB;
    const [ex, ey] = scene.across ? [x + length, y] : [x, y + length];
    pen.moveTo(x, y);
    pen.lineTo(ex, ey);
    pen.moveTo(ex + 2.2, ey);
    pen.arc(ex, ey, 2.2, 0, 2 * Math.PI);
  }
}

const WIDEST = 180;

function labels({ pen, theme, type }: Brush, scene: Scene, view: Rect, marks: Marks, scale: number): void {
  const { across, points, offsets } = scene;
  const font = FONT.label(type);
  pen.font = font;
  pen.textBaseline = "middle";
  pen.lineJoin = "round";
  pen.lineWidth = 3.5;
  pen.strokeStyle = theme.ground;
  const write = (words: string, x: number, y: number, colour: string, align: CanvasTextAlign): void => {
    pen.textAlign = align;
    pen.strokeText(words, x, y);
    pen.fillStyle = colour;
    pen.fillText(words, x, y);
  };
  const labelled = new Map<number, [left: number, right: number][]>();
  for (const e of seenWires(scene, view)) {
    const wire = scene.wires[e]!;
    if (weightOf(scene, e, marks) === "pale") continue;
    const pointed = e === marks.wire;
    if (!isTunnel(scene, e)) {
      if (!pointed && !wire.informative && scale < SHOW.everyLabel) continue;
      const words = type.fit(wire.label, font, WIDEST);
      const x = points[2 * offsets[e]!]!;
      const y = points[2 * offsets[e]! + 1]!;
      const colour = pointed ? theme.ink : theme.muted;
      if (!across) {
        const [left, right] = [x + 6, x + 6 + type.width(words, font)];
        const beside = labelled.get(wire.source) ?? [];
        if (!pointed && beside.some(([from, to]) => left < to && from < right)) continue;
        labelled.set(wire.source, [...beside, [left, right]]);
        write(words, left, y + 12, colour, "left");
      } else {
        const room = points[2 * offsets[e + 1]! - 2]! - x;
        if (pointed || room > type.width(words, font) + 16) write(words, x + 7, y - 7, colour, "left");
      }
      continue;
    }
    const [tx, ty] = stubAt(scene, wire.target, false);
    const name = scene.figures[wire.source]!.face.title || type.fit(wire.label, font, WIDEST);
    if (across) write(name, tx - STUB - 5, ty, theme.muted, "right");
    else write(name, tx + 6, ty - 8, theme.muted, "left");
    if (!wire.far) continue;
    const [sx, sy] = stubAt(scene, wire.source, true);
    if (across) write(wire.far, sx + STUB + 5, sy, theme.muted, "left");
    else write(wire.far, sx + 6, sy + 12, theme.muted, "left");
  }
}

let hatchFor: { key: string; pattern: CanvasPattern | string } | null = null;

/** Diagonal lines for layout moves, made once per theme. */
export function hatch(ctx: CanvasRenderingContext2D, theme: Theme): CanvasPattern | string {
  if (hatchFor?.key === theme.hatch) return hatchFor.pattern;
  const tile = document.createElement("canvas");
  const SIDE = 16;
  tile.width = tile.height = SIDE;
  const pen = tile.getContext("2d")!;
  pen.strokeStyle = theme.hatch;
  pen.lineWidth = 3.4;
  for (const at of [-SIDE, 0, SIDE]) {
    pen.beginPath();
    pen.moveTo(at - 2, SIDE + 2);
    pen.lineTo(at + SIDE + 2, -2);
    pen.stroke();
  }
  const pattern = ctx.createPattern(tile, "repeat");
  pattern?.setTransform(new DOMMatrix().scale(0.5));
  hatchFor = { key: theme.hatch, pattern: pattern ?? theme.hatch };
  return hatchFor.pattern;
}

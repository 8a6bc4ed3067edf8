import type { Look } from "../overlay";
import { type Brush, flatColour, paintBox } from "./box";
import type { Camera, Rect } from "./camera";
import { FONT } from "./measure";
import { around, rectOf, type Scene, stubAt, type Wire } from "./scene";
import type { Type } from "./text";
import type { Theme } from "./theme";

/** Boxes that stand out, by position. */
export interface Marks {
  selected: ReadonlySet<number>;
  hovered: ReadonlySet<number>;
  /** Selected or hovered only through inferred pairs. */
  inferred: ReadonlySet<number>;
  hits: ReadonlySet<number>;
  hit: number;
  /** Selected boxes that belong to one layer, to be framed together. */
  groups: number[][];
  wire: number;
}

/** Scales from which on more can be read. */
const SHOW = { shape: 0.17, title: 0.42, line: 0.5, label: 0.68, everyLabel: 1.35 };
const FRAME = 9;

export function paint(
  ctx: CanvasRenderingContext2D,
  ratio: number,
  scene: Scene,
  camera: Camera,
  theme: Theme,
  type: Type,
  look: Look,
  marks: Marks,
): void {
  const { scale } = camera;
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.fillStyle = theme.ground;
  ctx.fillRect(0, 0, camera.width, camera.height);
  ctx.setTransform(ratio * scale, 0, 0, ratio * scale, ratio * camera.x, ratio * camera.y);
  const view = camera.view;
  const brush: Brush = { ctx, theme, type, hatch: hatch(ctx, theme) };

  frames(ctx, scene, theme, marks, scale);
  wires(ctx, scene, view, theme, scale, marks);
  const detail = { titles: scale >= SHOW.title, lines: scale >= SHOW.line };
  const flat = scale < SHOW.shape;
  for (let i = 0; i < scene.figures.length; i++) {
    const figure = scene.figures[i]!;
    const halfWidth = figure.width / 2;
    const halfHeight = figure.height / 2;
    const x = scene.x[i]!;
    const y = scene.y[i]!;
    if (x + halfWidth < view.x || x - halfWidth > view.x + view.width) continue;
    if (y + halfHeight < view.y || y - halfHeight > view.y + view.height) continue;
    if (flat) {
      ctx.fillStyle = marks.selected.has(i) ? theme.select : flatColour(theme, figure, look, i);
      ctx.fillRect(x - halfWidth, y - halfHeight, figure.width, figure.height);
    } else paintBox(brush, figure, x, y, look, i, detail);
  }
  outlines(ctx, scene, theme, marks, scale);
  if (scale >= SHOW.label) labels(brush, scene, view, marks, scale);
}

/** One frame around the boxes that one layer swallowed, where no stranger stands between them. */
function frames(
  ctx: CanvasRenderingContext2D,
  scene: Scene,
  theme: Theme,
  marks: Marks,
  scale: number,
): void {
  for (const group of marks.groups) {
    const rect = around(scene, group);
    if (!rect || (group.length > 1 && strangers(scene, rect, new Set(group)))) continue;
    ctx.beginPath();
    ctx.roundRect(rect.x - FRAME, rect.y - FRAME, rect.width + 2 * FRAME, rect.height + 2 * FRAME, 9);
    ctx.fillStyle = theme.selectTint;
    ctx.fill();
    if (group.length < 2) continue;
    ctx.lineWidth = Math.max(1.2, 1.2 / scale);
    ctx.strokeStyle = theme.select;
    if (group.some((i) => marks.inferred.has(i))) ctx.setLineDash([2, 4]);
    ctx.stroke();
    ctx.setLineDash([]);
  }
}

function strangers(scene: Scene, rect: Rect, group: ReadonlySet<number>): boolean {
  for (let i = 0; i < scene.figures.length; i++) {
    if (group.has(i)) continue;
    const r = rectOf(scene, i);
    if (
      r.x < rect.x + rect.width &&
      r.x + r.width > rect.x &&
      r.y < rect.y + rect.height &&
      r.y + r.height > rect.y
    ) {
      return true;
    }
  }
  return false;
}

function outlines(
  ctx: CanvasRenderingContext2D,
  scene: Scene,
  theme: Theme,
  marks: Marks,
  scale: number,
): void {
  const ring = (i: number, colour: string, width: number, grow: number): void => {
    const r = rectOf(scene, i);
    const line = Math.max(width, width / scale);
    const radius = scene.figures[i]!.shape === "pill" ? r.height / 2 : 5;
    ctx.beginPath();
    ctx.roundRect(r.x - grow, r.y - grow, r.width + 2 * grow, r.height + 2 * grow, radius + grow);
    ctx.lineWidth = line;
    ctx.strokeStyle = colour;
    if (marks.inferred.has(i)) ctx.setLineDash([2.5, 3]);
    ctx.stroke();
    ctx.setLineDash([]);
  };
  for (const i of marks.hits) ring(i, theme.hover, i === marks.hit ? 3 : 1.5, 2.5);
  for (const i of marks.hovered) if (!marks.selected.has(i)) ring(i, theme.hover, 2, 0.5);
  for (const i of marks.selected) ring(i, theme.select, 2.2, 0.5);
}

function wires(
  ctx: CanvasRenderingContext2D,
  scene: Scene,
  view: Rect,
  theme: Theme,
  scale: number,
  marks: Marks,
): void {
  const strong: Wire[] = [];
  const near = (wire: Wire, e: number): boolean =>
    e === marks.wire || marks.hovered.has(wire.source) || marks.hovered.has(wire.target);
  ctx.lineWidth = Math.max(1.1, 0.7 / scale);
  ctx.strokeStyle = theme.edge;
  ctx.lineJoin = "round";
  const flat = scale < SHOW.shape;
  const heads: Wire[] = [];
  if (flat) ctx.beginPath();
  scene.wires.forEach((wire, e) => {
    const [left, top, right, bottom] = wire.box;
    if (right < view.x || left > view.x + view.width || bottom < view.y || top > view.y + view.height) return;
    if (!wire.path) {
      if (!flat) stub(ctx, scene, wire);
      return;
    }
    if (near(wire, e)) strong.push(wire);
    else if (flat) {
      const p = wire.points;
      ctx.moveTo(p[0]!, p[1]!);
      for (let k = 2; k < p.length; k += 2) ctx.lineTo(p[k]!, p[k + 1]!);
    } else {
      ctx.stroke(wire.path);
      heads.push(wire);
    }
  });
  if (flat) ctx.stroke();
  else arrowheads(ctx, heads, theme.edge);
  ctx.strokeStyle = theme.hover;
  ctx.lineWidth = Math.max(1.8, 1.4 / scale);
  for (const wire of strong) ctx.stroke(wire.path!);
  if (!flat) arrowheads(ctx, strong, theme.hover);
}

function arrowheads(ctx: CanvasRenderingContext2D, list: Wire[], colour: string): void {
  ctx.beginPath();
  for (const { points } of list) {
    const x = points.at(-2)!;
    const y = points.at(-1)!;
    // A wire that closes a loop arrives from below.
    const sign = points.at(-3)! <= y ? 1 : -1;
    ctx.moveTo(x, y);
    ctx.lineTo(x - 3.4, y - sign * 6.5);
    ctx.lineTo(x + 3.4, y - sign * 6.5);
    ctx.closePath();
  }
  ctx.fillStyle = colour;
  ctx.fill();
}

/** A tensor that goes far: a short line with a dot at both ends instead of a wire across the picture. */
function stub(ctx: CanvasRenderingContext2D, scene: Scene, wire: Wire): void {
  const s = rectOf(scene, wire.source);
  const t = rectOf(scene, wire.target);
  const ends = [
    [stubAt(scene, scene.figures, wire.source), s.y + s.height, 9],
    [stubAt(scene, scene.figures, wire.target), t.y, -9],
  ] as const;
  ctx.beginPath();
  for (const [x, y, length] of ends) {
    ctx.moveTo(x, y);
    ctx.lineTo(x, y + length);
    ctx.moveTo(x + 2.2, y + length);
    ctx.arc(x, y + length, 2.2, 0, 2 * Math.PI);
  }
  ctx.stroke();
}

function labels(brush: Brush, scene: Scene, view: Rect, marks: Marks, scale: number): void {
  const { ctx, theme, type } = brush;
  ctx.font = FONT.label(type);
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  ctx.lineJoin = "round";
  ctx.lineWidth = 3.5;
  ctx.strokeStyle = theme.ground;
  const write = (words: string, x: number, y: number, colour: string): void => {
    ctx.strokeText(words, x, y);
    ctx.fillStyle = colour;
    ctx.fillText(words, x, y);
  };
  scene.wires.forEach((wire, e) => {
    const [x, y] = wire.at;
    const pointed = e === marks.wire;
    const [left, top, right, bottom] = wire.box;
    if (right < view.x || left > view.x + view.width || bottom < view.y || top > view.y + view.height) return;
    if (wire.path && (pointed || wire.telling || scale >= SHOW.everyLabel)) {
      write(wire.label, x + 6, y, pointed ? theme.ink : theme.muted);
    } else if (!wire.path) {
      const t = rectOf(scene, wire.target);
      const end = stubAt(scene, scene.figures, wire.target);
      write(scene.figures[wire.source]!.title || wire.label, end + 6, t.y - 8, theme.muted);
      if (wire.far) write(wire.far, x + 6, y, theme.muted);
    }
  });
}

let hatchFor: { key: string; pattern: CanvasPattern | string } | null = null;

/** Diagonal lines for layout moves, made once per theme. */
function hatch(ctx: CanvasRenderingContext2D, theme: Theme): CanvasPattern | string {
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

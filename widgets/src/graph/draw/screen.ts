import type { Look } from "../overlay";
import { FRAME_RADIUS, flatColour, RADIUS } from "./box";
import type { Rect } from "./camera";
import { CARD, NODE, STACK } from "./measure";
import {
  boxesInView,
  halos,
  hatch,
  isPale,
  type Marks,
  outlines,
  PALE,
  paint,
  SHOW,
  seenWires,
  strokes,
} from "./paint";
import { type Pixel, pixelOf, Raster } from "./raster";
import { isTunnel, type Scene } from "./scene";
import type { Type } from "./text";
import type { Theme } from "./theme";

/** With more pixels of wires than that in one picture only some of them are drawn: the rest would hide there. */
const WIRE_PIXELS = 4e5;
/** Pixels that a line or a tiny box may lie beside its place. */
const BESIDE = 2;
/** Pixels of the sides of a selected box, at least. */
const LEAST_SELECTED = 4;

/** Paints scenes on a canvas: with the pen where names can be read, and straight into pixels from further away. */
export class Screen {
  readonly ctx: CanvasRenderingContext2D;
  /** What the raster shows. */
  #far: Far | null = null;

  constructor(canvas: HTMLCanvasElement) {
    this.ctx = canvas.getContext("2d", { alpha: false })!;
  }

  clear(theme: Theme | null): void {
    const { ctx } = this;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.fillStyle = theme?.ground ?? "#ffffff";
    ctx.fillRect(0, 0, ctx.canvas.width, ctx.canvas.height);
  }

  paint(ratio: number, scene: Scene, camera: View, theme: Theme, type: Type, look: Look, marks: Marks): void {
    const { ctx } = this;
    const { scale, view } = camera;
    const brush = { pen: ctx, theme, type, hatch: hatch(ctx, theme), across: scene.across };
    if (scale < SHOW.title) {
      const { raster, x, y } = this.#paintFar(ratio, scene, camera, theme, look, marks.clear);
      ctx.putImageData(raster.image, 0, 0);
      ctx.setTransform(ratio * scale, 0, 0, ratio * scale, x, y);
      halos(brush, scene, marks, scale);
      const strong = [...marks.hovered].flatMap((i) => [...scene.into[i]!, ...scene.outOf[i]!]);
      if (marks.wire >= 0) strong.push(marks.wire);
      strokes(ctx, scene, strong, theme.hover, 1.4 / scale, scale >= SHOW.shape);
      if (scale < SHOW.shape) fillSelected(ctx, scene, marks.selected, theme.select, scale);
      outlines(brush, scene, marks, scale);
      return;
    }
    this.clear(theme);
    ctx.setTransform(ratio * scale, 0, 0, ratio * scale, ratio * camera.x, ratio * camera.y);
    paint(brush, scene, look, view, scale, marks);
  }

  /** Boxes and wires as pixels; where only the camera moved, the picture moves with it and its new edges are drawn. */
  #paintFar(ratio: number, scene: Scene, camera: View, theme: Theme, look: Look, clear: Marks["clear"]): Far {
    const { width, height } = this.ctx.canvas;
    const last = this.#far;
    const raster =
      last?.raster.width === width && last.raster.height === height ? last.raster : new Raster(width, height);
    // In whole pixels, so that a moved picture is the one that would be drawn there.
    const [x, y] = [Math.round(camera.x * ratio), Math.round(camera.y * ratio)];
    const scale = camera.scale * ratio;
    const shaped = camera.scale >= SHOW.shape;
    const every = wireStep(scene, camera.view, scale, raster);
    const far: Far = { raster, scene, look, theme, clear, scale, shaped, every, x, y };
    const moved = last !== null && SAME.every((key) => far[key] === last[key]);
    const parts = moved ? raster.shift(x - last.x, y - last.y) : [{ x: 0, y: 0, width, height }];
    for (const part of parts) {
      raster.clear(pixelOf(theme.ground), part);
      const view = {
        x: (part.x - BESIDE - x) / scale,
        y: (part.y - BESIDE - y) / scale,
        width: (part.width + 2 * BESIDE) / scale,
        height: (part.height + 2 * BESIDE) / scale,
      };
      const boxes = boxesInView(scene, view);
      farFrames(far, boxes);
      farWires(far, seenWires(scene, view));
      farBoxes(far, boxes);
    }
    this.#far = far;
    return far;
  }
}

export interface View {
  scale: number;
  x: number;
  y: number;
  view: Rect;
}

interface Far {
  raster: Raster;
  scene: Scene;
  look: Look;
  theme: Theme;
  clear: Marks["clear"];
  /** Pixels = world × scale + offset. */
  scale: number;
  x: number;
  y: number;
  /** Boxes are more than blocks of colour. */
  shaped: boolean;
  /** One wire of so many is drawn. */
  every: number;
}

const SAME = ["raster", "scene", "look", "theme", "clear", "scale", "shaped", "every"] as const;

/** One of how many wires of the view is drawn: a power of two, so that it seldom changes while the picture moves. */
function wireStep(scene: Scene, view: Rect, scale: number, { width, height }: Raster): number {
  const { extents } = scene;
  let pixels = 0;
  for (const e of seenWires(scene, view)) {
    pixels +=
      Math.min((extents[4 * e + 2]! - extents[4 * e]!) * scale, width) +
      Math.min((extents[4 * e + 3]! - extents[4 * e + 1]!) * scale, height);
  }
  return 2 ** Math.ceil(Math.log2(Math.max(1, pixels / WIRE_PIXELS)));
}

/** Blocks of colour have the colour of a selection where they are in it, and a size that is seen among thousands. */
function fillSelected(
  ctx: CanvasRenderingContext2D,
  scene: Scene,
  selected: Marks["selected"],
  colour: string,
  scale: number,
): void {
  ctx.fillStyle = colour;
  for (const i of selected) {
    if (scene.figures[i]!.shape === "frame") continue;
    const width = Math.max(scene.width[i]!, LEAST_SELECTED / scale);
    const height = Math.max(scene.height[i]!, LEAST_SELECTED / scale);
    ctx.fillRect(scene.x[i]! - width / 2, scene.y[i]! - height / 2, width, height);
  }
}

function farFrames(far: Far, boxes: readonly number[]): void {
  const { raster, scene, look, theme, clear, scale } = far;
  for (const i of boxes) {
    if (scene.figures[i]!.shape !== "frame") continue;
    const opacity = clear && !clear.has(i) ? PALE : 1;
    const [x0, y0, x1, y1] = corners(far, i);
    const colour = pixelOf(flatColour(theme, scene.figures[i]!, { ...look, families: true }, i));
    const radius = FRAME_RADIUS * scale;
    if (x1 - x0 > 6) {
      raster.fill(x0, y0, x1, y1, radius, pixelOf(theme.line), opacity);
      raster.fill(x0 + 1, y0 + 1, x1 - 1, y1 - 1, radius - 1, pixelOf(theme.ground), opacity);
    }
    raster.fill(x0, y0, x1, y1, radius, colour, opacity * (theme.dark ? 0.16 : 0.08));
  }
}

function farBoxes(far: Far, boxes: readonly number[]): void {
  const { raster, scene, look, theme, clear, scale, shaped } = far;
  const line = pixelOf(theme.line);
  const card = pixelOf(theme.card);
  for (const i of boxes) {
    const figure = scene.figures[i]!;
    const { shape } = figure;
    if (shape === "frame") continue;
    let [x0, y0, x1, y1] = corners(far, i);
    const alpha = clear && !clear.has(i) ? PALE : 1;
    const colour = pixelOf(flatColour(theme, figure, look, i));
    if (!shaped) {
      if (x1 - x0 < 1.5) [x0, x1] = [(x0 + x1) / 2 - 0.75, (x0 + x1) / 2 + 0.75];
      if (y1 - y0 < 1) [y0, y1] = [(y0 + y1) / 2 - 0.5, (y0 + y1) / 2 + 0.5];
      raster.fill(x0, y0, x1, y1, RADIUS * scale, colour, alpha);
      continue;
    }
    const radius = shape === "pill" ? (y1 - y0) / 2 : RADIUS * scale;
    if (shape === "pill" || shape === "slim") {
      raster.fill(x0, y0, x1, y1, radius, line, alpha);
      const inner = pixelOf(shape === "pill" ? theme.tag : theme.hatch);
      raster.fill(x0 + 1, y0 + 1, x1 - 1, y1 - 1, radius - 1, inner, alpha);
      if (shape === "slim" && look.colour[i]) raster.fill(x0, y0, x0 + 4 * scale, y1, radius, colour, alpha);
      continue;
    }
    if (shape === "group") {
      const sheet = STACK * scale;
      y1 -= sheet;
      raster.fill(x0 + sheet, y1 - sheet, x1 - sheet, y1 + sheet, radius, line, alpha);
      raster.fill(x0 + sheet + 1, y1, x1 - sheet - 1, y1 + sheet - 1, radius, card, alpha);
    }
    const empty = shape === "node" && (figure.reason !== "" || !(look.colour[i] || look.families));
    if (shape === "node" && !empty && scene.height[i]! <= NODE.bar) {
      raster.fill(x0, y0, x1, y1, radius, colour, alpha);
      continue;
    }
    raster.fill(x0, y0, x1, y1, radius, empty ? colour : line, alpha);
    raster.fill(x0 + 1, y0 + 1, x1 - 1, y1 - 1, radius - 1, card, alpha);
    if (empty) continue;
    if (shape === "node") {
      raster.fill(x0, y0, x1, y0 + NODE.bar * scale, radius, colour, alpha);
      continue;
    }
    const bar = look.colour[i] || (shape === "group" && look.families) ? colour : line;
    raster.fill(x0, y0, x0 + CARD.bar * scale, y1, 0, bar, alpha);
    const top = y0 + (5 + (CARD.row - CARD.chip) / 2 + (shape === "group" ? CARD.row - 1 : 0)) * scale;
    for (const chip of figure.face.chips) {
      const from = x0 + chip.x * scale;
      const ground = pixelOf(theme.family[chip.family]);
      raster.fill(from, top, from + chip.width * scale, top + CARD.chip * scale, 3 * scale, ground, alpha);
    }
  }
}

function corners({ scene, scale, x, y }: Far, i: number): [number, number, number, number] {
  const middle = scene.x[i]! * scale + x;
  const level = scene.y[i]! * scale + y;
  const halfWidth = (scene.width[i]! / 2) * scale;
  const halfHeight = (scene.height[i]! / 2) * scale;
  return [middle - halfWidth, level - halfHeight, middle + halfWidth, level + halfHeight];
}

/** Where the chords of a bend end, as parts of its way along both axes: points on the curve that the pen draws. */
const BEND = [0.25, 0.5, 0.75, 1].map((t) => ({
  main: t ** 3 + 1.5 * t * (1 - t),
  cross: t * t * (3 - 2 * t),
}));

function farWires(far: Far, list: readonly number[]): void {
  const { raster, scene, theme, clear, scale, shaped, every, x: dx, y: dy } = far;
  const { points: p, offsets, across } = scene;
  const edge = pixelOf(theme.edge);
  // The smaller the boxes, the more wires lie on one pixel: they must not hide the boxes.
  const weight = Math.min(1, 0.35 + 3 * scale);
  for (const e of list) {
    if (e % every || isTunnel(scene, e)) continue;
    const alpha = isPale(scene, e, clear) ? PALE * weight : weight;
    const end = 2 * offsets[e + 1]!;
    let k = 2 * offsets[e]!;
    let x0 = p[k]! * scale + dx;
    let y0 = p[k + 1]! * scale + dy;
    for (k += 2; k < end; k += 2) {
      const x1 = p[k]! * scale + dx;
      const y1 = p[k + 1]! * scale + dy;
      // Turns that lie within a pixel cannot be seen, and there are many of them from far away.
      if (k < end - 2 && Math.abs(x1 - x0) + Math.abs(y1 - y0) < NEAR) continue;
      if (!shaped || x0 === x1 || y0 === y1) raster.line(x0, y0, x1, y1, edge, alpha);
      else bend(raster, x0, y0, x1, y1, across, edge, alpha);
      [x0, y0] = [x1, y1];
    }
  }
}

const NEAR = 1.5;

function bend(
  raster: Raster,
  x0: number,
  y0: number,
  x1: number,
  y1: number,
  across: boolean,
  colour: Pixel,
  alpha: number,
): void {
  let [ax, ay] = [x0, y0];
  for (const { main, cross } of BEND) {
    const bx = x0 + (x1 - x0) * (across ? main : cross);
    const by = y0 + (y1 - y0) * (across ? cross : main);
    raster.line(ax, ay, bx, by, colour, alpha);
    [ax, ay] = [bx, by];
  }
}

import { inkOn } from "../colour";
import { NONE, shortOp } from "../format";
import type { Look } from "../overlay";
import { CARD, type Figure, FONT, NODE } from "./measure";
import type { Type } from "./text";
import type { Theme } from "./theme";

/** How much of a box can be seen at the present scale. */
export interface Detail {
  /** Names of operators. */
  titles: boolean;
  /** Weight shapes, values, tags. */
  lines: boolean;
}

export interface Brush {
  ctx: CanvasRenderingContext2D;
  theme: Theme;
  type: Type;
  hatch: CanvasPattern | string;
}

const RADIUS = 5;

export function paintBox(
  brush: Brush,
  figure: Figure,
  x: number,
  y: number,
  look: Look,
  i: number,
  detail: Detail,
): void {
  const left = x - figure.width / 2;
  const top = y - figure.height / 2;
  if (figure.shape === "node") paintNode(brush, figure, left, top, look, i, detail);
  else if (figure.shape === "card") paintCard(brush, figure, left, top, look, i, detail);
  else if (figure.shape === "slim") paintSlim(brush, figure, left, top, look, i, detail);
  else paintPill(brush, figure, left, top, detail);
}

/** The colour that stands for a box when nothing else of it can be seen. */
export function flatColour(theme: Theme, figure: Figure, look: Look, i: number): string {
  if (figure.shape === "pill") return theme.line;
  const colour = look.colour[i];
  if (colour) return colour;
  if (figure.shape === "slim") return theme.line;
  const family = figure.chips[0]?.family ?? figure.box.family;
  return look.families || figure.shape === "card" ? theme.family[family] : theme.line;
}

function text(brush: Brush, words: string, x: number, y: number, font: string, colour: string): void {
  brush.ctx.font = font;
  brush.ctx.fillStyle = colour;
  brush.ctx.fillText(words, x, y);
}

function outline(
  ctx: CanvasRenderingContext2D,
  figure: Figure,
  left: number,
  top: number,
  radius: number,
): void {
  ctx.beginPath();
  ctx.roundRect(left, top, figure.width, figure.height, radius);
}

function paintNode(
  brush: Brush,
  figure: Figure,
  left: number,
  top: number,
  look: Look,
  i: number,
  detail: Detail,
): void {
  const { ctx, theme, type } = brush;
  const { width, height, box } = figure;
  const missing = figure.reason !== "";
  const ground = look.colour[i] ?? (look.families ? theme.family[box.family] : null);
  const hollow = missing || !ground;
  outline(ctx, figure, left, top, RADIUS);
  ctx.fillStyle = theme.card;
  ctx.fill();
  if (!hollow) {
    ctx.beginPath();
    const foot = height > NODE.bar ? 0 : RADIUS;
    ctx.roundRect(left, top, width, NODE.bar, [RADIUS, RADIUS, foot, foot]);
    ctx.fillStyle = ground;
    ctx.fill();
  }
  outline(ctx, figure, left + 0.5, top + 0.5, RADIUS);
  ctx.lineWidth = missing ? 1.2 : 1;
  ctx.strokeStyle = missing ? theme.familyInk[box.family] : theme.line;
  if (missing) ctx.setLineDash([4, 3]);
  ctx.beginPath();
  ctx.roundRect(left + 0.5, top + 0.5, width - 1, height - 1, RADIUS - 0.5);
  if (missing || hollow || height > NODE.bar) ctx.stroke();
  ctx.setLineDash([]);
  if (!detail.titles) return;

  const ink = hollow ? (missing ? theme.familyInk[box.family] : theme.ink) : inkOn(ground);
  const font = FONT.title(type);
  const value = detail.lines ? look.text[i] : null;
  ctx.textBaseline = "middle";
  const middle = top + NODE.bar / 2 + 0.5;
  if (value) {
    const valueFont = FONT.value(type, look.italic);
    const taken = type.width(value, valueFont);
    const room = width - taken - 22;
    const title =
      type.width(figure.title, font) <= room ? figure.title : type.fit(shortOp(box.op), font, room);
    ctx.textAlign = "left";
    text(brush, title, left + 8, middle, font, ink);
    ctx.textAlign = "right";
    text(brush, value, left + width - 8, middle, valueFont, ink);
  } else {
    ctx.textAlign = "center";
    text(brush, figure.title, left + width / 2, middle, font, ink);
  }
  if (!detail.lines) return;
  ctx.textAlign = "center";
  figure.lines.forEach((line, k) => {
    text(brush, line, left + width / 2, top + NODE.bar + 9.5 + k * NODE.line, FONT.line(type), theme.muted);
  });
  if (missing) {
    ctx.textAlign = "left";
    text(brush, figure.reasonWord, left + width + 7, middle, type.font(10, 400, true), theme.muted);
  }
}

function paintCard(
  brush: Brush,
  figure: Figure,
  left: number,
  top: number,
  look: Look,
  i: number,
  detail: Detail,
): void {
  const { ctx, theme, type } = brush;
  const { width, height, box } = figure;
  outline(ctx, figure, left, top, RADIUS);
  ctx.fillStyle = theme.card;
  ctx.fill();
  ctx.beginPath();
  ctx.roundRect(left, top, CARD.bar, height, [RADIUS, 0, 0, RADIUS]);
  ctx.fillStyle = look.colour[i] ?? theme.line;
  ctx.fill();
  ctx.lineWidth = 1;
  ctx.strokeStyle = theme.line;
  ctx.beginPath();
  ctx.roundRect(left + 0.5, top + 0.5, width - 1, height - 1, RADIUS - 0.5);
  ctx.stroke();
  const first = top + 5 + CARD.row / 2;
  for (const chip of figure.chips) {
    ctx.beginPath();
    ctx.roundRect(left + chip.x, first - CARD.chip / 2, chip.width, CARD.chip, 3);
    ctx.fillStyle = theme.family[chip.family];
    ctx.fill();
  }
  if (!detail.titles) return;
  ctx.textBaseline = "middle";
  ctx.textAlign = "center";
  for (const chip of figure.chips) {
    text(brush, chip.text, left + chip.x + chip.width / 2, first + 0.5, FONT.chip(type), "#ffffff");
  }
  if (!detail.lines) return;
  const right = left + width - CARD.pad;
  const start = left + CARD.bar + CARD.pad - 2;
  const second = top + 4 + CARD.row * 1.5;
  if (figure.fused) {
    ctx.textAlign = "right";
    text(brush, figure.fused, right, first + 0.5, FONT.line(type), theme.muted);
  }
  const value = look.text[i] ?? (look.legend?.kind === "scale" ? NONE : null);
  ctx.textAlign = "left";
  if (value)
    text(
      brush,
      value,
      start,
      second,
      FONT.value(type, look.italic),
      value === NONE ? theme.muted : theme.ink,
    );
  else text(brush, figure.title, start, second, FONT.line(type), theme.muted);
  if (box.precision) {
    const tag = Math.ceil(type.width(box.precision, FONT.label(type))) + 12;
    ctx.beginPath();
    ctx.roundRect(right - tag, second - 7, tag, 14, 3);
    ctx.fillStyle = theme.tag;
    ctx.fill();
    ctx.textAlign = "center";
    text(brush, box.precision, right - tag / 2, second + 0.5, FONT.label(type), theme.ink);
  }
  ctx.textAlign = "left";
  figure.lines.forEach((line, k) => {
    text(brush, line, start, top + 5 + 2 * CARD.row + 5 + k * CARD.line, FONT.line(type), theme.muted);
  });
}

function paintSlim(
  brush: Brush,
  figure: Figure,
  left: number,
  top: number,
  look: Look,
  i: number,
  detail: Detail,
): void {
  const { ctx, theme, type } = brush;
  outline(ctx, figure, left, top, 4);
  ctx.fillStyle = theme.card;
  ctx.fill();
  ctx.fillStyle = brush.hatch;
  ctx.fill();
  const colour = look.colour[i];
  if (colour) {
    ctx.beginPath();
    ctx.roundRect(left, top, 4, figure.height, [4, 0, 0, 4]);
    ctx.fillStyle = colour;
    ctx.fill();
  }
  ctx.lineWidth = 1;
  ctx.strokeStyle = theme.line;
  ctx.beginPath();
  ctx.roundRect(left + 0.5, top + 0.5, figure.width - 1, figure.height - 1, 3.5);
  ctx.stroke();
  if (!detail.lines) return;
  const middle = top + figure.height / 2 + 0.5;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  text(brush, figure.title, left + 9, middle, FONT.line(type), theme.ink);
  const value = look.text[i];
  if (!value) return;
  ctx.textAlign = "right";
  text(brush, value, left + figure.width - 8, middle, FONT.value(type, look.italic), theme.ink);
}

function paintPill(brush: Brush, figure: Figure, left: number, top: number, detail: Detail): void {
  const { ctx, theme, type } = brush;
  outline(ctx, figure, left, top, figure.height / 2);
  ctx.fillStyle = theme.tag;
  ctx.fill();
  ctx.lineWidth = 1;
  ctx.strokeStyle = theme.line;
  ctx.stroke();
  if (!detail.titles) return;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  const middle = top + figure.height / 2 + 0.5;
  text(brush, figure.title, left + figure.width / 2, middle, FONT.line(type), theme.ink);
}

import { colourOf, NONE, shortOp } from "../../core/format";
import { inkOn } from "../colour";
import { FRAME, GAP } from "../layout/types";
import type { Look } from "../overlay";
import type { Rect } from "./camera";
import { CARD, type Figure, FOLD, FONT, NODE, STACK } from "./measure";
import type { Pen } from "./pen";
import { blend } from "./raster";
import { foldRect } from "./scene";
import type { Type } from "./text";
import type { Theme } from "./theme";

export interface Detail {
  titles: boolean;
  /** Weight shapes, values, tags. */
  lines: boolean;
}

export interface Brush {
  pen: Pen;
  theme: Theme;
  type: Type;
  hatch: CanvasPattern | string;
  across: boolean;
}

export const RADIUS = 5;
export const FRAME_RADIUS = 8;

/** One box to paint: its figure, the place that the layout gave it, and its position in the look. */
interface Place extends Rect {
  figure: Figure;
  i: number;
}

export function paintBox(
  brush: Brush,
  figure: Figure,
  rect: Rect,
  look: Look,
  i: number,
  detail: Detail,
  room = Infinity,
): void {
  const place: Place = { ...rect, figure, i };
  const { shape } = figure;
  if (shape === "node") paintNode(brush, place, look, detail, room);
  else if (shape === "card") paintCard(brush, place, look, detail);
  else if (shape === "group") paintGroup(brush, place, look, detail);
  else if (shape === "frame") paintFrame(brush, place, look);
  else if (shape === "slim") paintSlim(brush, place, look, detail);
  else paintPill(brush, place, detail);
  if (!detail.titles || shape === "frame") return;
  if (figure.fold) paintFold(brush, place, look);
  const badge = look.badge?.[i];
  if (badge && detail.lines) paintBadge(brush, place, badge, look);
}

export function flatColour(theme: Theme, figure: Figure, look: Look, i: number): string {
  const { shape, box } = figure;
  if (shape === "pill") return theme.line;
  const colour = look.colour[i];
  if (colour) return colour;
  if (shape === "slim") return theme.line;
  return look.families || shape === "card" ? theme.family[colourOf(box)] : theme.line;
}

function text(brush: Brush, words: string, x: number, y: number, font: string, colour: string): void {
  brush.pen.font = font;
  brush.pen.fillStyle = colour;
  brush.pen.fillText(words, x, y);
}

function filled(pen: Pen, { x, y, width, height }: Rect, radius: number | number[], colour: string): void {
  pen.beginPath();
  pen.roundRect(x, y, width, height, radius);
  pen.fillStyle = colour;
  pen.fill();
}

function lined(pen: Pen, { x, y, width, height }: Rect, radius: number, colour: string, line = 1): void {
  pen.beginPath();
  pen.roundRect(x + 0.5, y + 0.5, width - 1, height - 1, radius - 0.5);
  pen.lineWidth = line;
  pen.strokeStyle = colour;
  pen.stroke();
}

/** A node; the word why it has no layer stands at its right where there is `room`, and its glyph in any case. */
function paintNode(brush: Brush, place: Place, look: Look, detail: Detail, room: number): void {
  const { pen, theme, type } = brush;
  const { figure, i, x: left, y: top, width, height } = place;
  const { box } = figure;
  const missing = figure.reason !== "";
  const ground = look.colour[i] ?? (look.families ? theme.family[box.family] : null);
  const hollow = missing || !ground;
  const tall = height > NODE.bar;
  if (hollow || tall) filled(pen, place, RADIUS, theme.card);
  if (!hollow) {
    const foot = tall ? 0 : RADIUS;
    filled(pen, { ...place, height: NODE.bar }, [RADIUS, RADIUS, foot, foot], ground);
  }
  if (missing) pen.setLineDash([4, 3]);
  if (hollow || tall)
    lined(pen, place, RADIUS, missing ? theme.familyInk[box.family] : theme.line, missing ? 1.2 : 1);
  if (missing) pen.setLineDash([]);
  if (!detail.titles) return;

  const { face } = figure;
  const ink = hollow ? (missing ? theme.familyInk[box.family] : theme.ink) : inkOn(ground);
  const font = FONT.title(type);
  const value = detail.lines ? look.text[i] : null;
  const edge = figure.fold ? FOLD.side + 4 : 0;
  pen.textBaseline = "middle";
  const middle = top + NODE.bar / 2 + 0.5;
  if (value) {
    const valueFont = FONT.value(type, look.italic);
    const valueWidth = type.width(value, valueFont);
    const room = width - valueWidth - 22 - edge;
    const title = type.width(face.title, font) <= room ? face.title : type.fit(shortOp(box.op), font, room);
    pen.textAlign = "left";
    text(brush, title, left + 8, middle, font, ink);
    pen.textAlign = "right";
    text(brush, value, left + width - 8 - edge, middle, valueFont, ink);
  } else {
    pen.textAlign = "center";
    text(brush, face.title, left + width / 2, middle, font, ink);
  }
  if (!detail.lines) return;
  pen.textAlign = "center";
  face.lines.forEach((line, k) => {
    text(brush, line, left + width / 2, top + NODE.bar + 9.5 + k * NODE.line, FONT.line(type), theme.muted);
  });
  if (missing) {
    pen.textAlign = "left";
    const badge = look.badge?.[i] && !brush.across ? type.width(look.badge[i], FONT.badge(type)) + 7 : 0;
    const font = type.font(10, 400, true);
    const start = 7 + badge;
    if (start + type.width(figure.reasonWord, font) < room)
      text(brush, figure.reasonWord, left + width + start, middle, font, theme.muted);
  }
}

function paintChips(brush: Brush, { figure, x: left }: Place, middle: number, detail: Detail): void {
  const { pen, theme, type } = brush;
  const { chips } = figure.face;
  for (const { x, width, family } of chips) {
    const rect = { x: left + x, y: middle - CARD.chip / 2, width, height: CARD.chip };
    filled(pen, rect, 3, theme.family[family]);
  }
  if (!detail.titles) return;
  pen.textBaseline = "middle";
  pen.textAlign = "center";
  for (const chip of chips)
    text(brush, chip.text, left + chip.x + chip.width / 2, middle + 0.5, FONT.chip(type), "#ffffff");
}

function paintCard(brush: Brush, place: Place, look: Look, detail: Detail): void {
  const { pen, theme, type } = brush;
  const { figure, i, x: left, y: top, width, height } = place;
  const { box, face } = figure;
  filled(pen, place, RADIUS, theme.card);
  filled(
    pen,
    { x: left, y: top, width: CARD.bar, height },
    [RADIUS, 0, 0, RADIUS],
    look.colour[i] ?? theme.line,
  );
  lined(pen, place, RADIUS, theme.line);
  const first = top + 5 + CARD.row / 2;
  paintChips(brush, place, first, detail);
  if (!detail.lines) return;
  const right = left + width - CARD.pad;
  const start = left + CARD.bar + CARD.pad - 2;
  const second = top + 4 + CARD.row * 1.5;
  if (face.fused) {
    pen.textAlign = "right";
    const badge = look.badge?.[i];
    const badgeWidth =
      badge && !brush.across ? inside(Math.ceil(type.width(badge, FONT.badge(type))) + 9) : 0;
    const at = right - (figure.fold ? FOLD.side : 0) - Math.max(0, badgeWidth + 3 - CARD.pad);
    text(brush, face.fused, at, first + 0.5, FONT.line(type), theme.muted);
  }
  const value = look.text[i] ?? (look.legend?.kind === "scale" ? NONE : null);
  pen.textAlign = "left";
  if (value)
    text(
      brush,
      value,
      start,
      second,
      FONT.value(type, look.italic),
      value === NONE ? theme.muted : theme.ink,
    );
  else text(brush, face.title, start, second, FONT.line(type), theme.muted);
  if (box.precision) paintTag(brush, box.precision, right, second);
  pen.textAlign = "left";
  face.lines.forEach((line, k) => {
    text(brush, line, start, top + 5 + 2 * CARD.row + 5 + k * CARD.line, FONT.line(type), theme.muted);
  });
}

function paintTag({ pen, theme, type, ...brush }: Brush, words: string, right: number, middle: number): void {
  const width = Math.ceil(type.width(words, FONT.label(type))) + 12;
  filled(pen, { x: right - width, y: middle - 7, width, height: 14 }, 3, theme.tag);
  pen.textAlign = "center";
  text({ pen, theme, type, ...brush }, words, right - width / 2, middle + 0.5, FONT.label(type), theme.ink);
}

function paintGroup(brush: Brush, place: Place, look: Look, detail: Detail): void {
  const { pen, theme, type } = brush;
  const { figure, i, x: left, y: top, width } = place;
  const { face, box } = figure;
  const height = place.height - STACK;
  for (const sheet of [2, 1]) {
    const inset = 4 * sheet;
    const below = {
      x: left + inset,
      y: top + 12,
      width: width - 2 * inset,
      height: height - 12 + (STACK / 2) * sheet,
    };
    filled(pen, below, RADIUS, theme.card);
    lined(pen, below, RADIUS, theme.line);
  }
  const card = { x: left, y: top, width, height };
  filled(pen, card, RADIUS, theme.card);
  const colour = look.colour[i] ?? (look.families ? theme.family[box.family] : theme.line);
  filled(pen, { ...card, width: CARD.bar }, [RADIUS, 0, 0, RADIUS], colour);
  lined(pen, card, RADIUS, theme.line);
  if (!detail.titles) return;
  const start = left + CARD.bar + CARD.pad - 2;
  const first = top + 4 + CARD.row / 2;
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  text(brush, face.title, start, first, FONT.title(type), theme.ink);
  if (face.chips.length) paintChips(brush, place, first + CARD.row, detail);
  if (!detail.lines) return;
  pen.textAlign = "left";
  const below = first + CARD.row * (face.chips.length ? 2 : 1) - 3;
  face.lines.forEach((line, k) => {
    text(brush, line, start, below + k * CARD.line, FONT.line(type), theme.muted);
  });
  const value = look.text[i];
  if (!value) return;
  pen.textAlign = "right";
  text(brush, value, left + width - CARD.pad, below, FONT.value(type, look.italic), theme.ink);
}

const tints = (theme: Theme): [number, number] => (theme.dark ? [0.13, 0.3] : [0.06, 0.14]);

function paintFrame({ pen, theme }: Brush, place: Place, look: Look): void {
  const { figure, i, height } = place;
  const colour = look.colour[i] ?? theme.family[colourOf(figure.box)];
  const ring = look.colour[i] ? colour : theme.line;
  const alpha = pen.globalAlpha;
  const [tint, strip] = tints(theme);
  pen.globalAlpha = alpha * tint;
  filled(pen, place, FRAME_RADIUS, colour);
  pen.globalAlpha = alpha * strip;
  filled(pen, { ...place, height: Math.min(FRAME.head, height) }, [FRAME_RADIUS, FRAME_RADIUS, 0, 0], colour);
  pen.globalAlpha = alpha;
  lined(pen, place, FRAME_RADIUS, ring);
}

/** The title strip of an open group, painted after the wires that run over it. */
export function paintHead(
  brush: Brush,
  figure: Figure,
  rect: Rect,
  look: Look,
  i: number,
  detail: Detail,
): void {
  if (!detail.titles) return;
  const { pen, theme, type } = brush;
  const { face } = figure;
  const middle = rect.y + FRAME.head / 2 + 0.5;
  const [tint, strip] = tints(theme);
  const colour = look.colour[i] ?? theme.family[colourOf(figure.box)];
  const font = FONT.title(type);
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  pen.lineJoin = "round";
  pen.lineWidth = 4;
  pen.strokeStyle = blend(blend(theme.ground, colour, tint), colour, strip);
  pen.font = font;
  pen.strokeText(face.title, rect.x + 10, middle);
  text(brush, face.title, rect.x + 10, middle, font, theme.ink);
  const end = rect.x + rect.width - FOLD.side - FOLD.edge - 8;
  const room = end - (rect.x + 10 + type.width(face.title, font) + 8);
  const value = look.text[i] ?? face.lines[0];
  if (detail.lines && value && room > 24) {
    const words = type.fit(value, FONT.line(type), room);
    pen.font = FONT.line(type);
    pen.textAlign = "right";
    pen.strokeText(words, end, middle);
    text(brush, words, end, middle, FONT.line(type), theme.muted);
  }
  const place = { ...rect, figure, i };
  paintFold(brush, place, look);
  const badge = look.badge?.[i];
  if (badge && detail.lines) paintBadge(brush, place, badge, look);
}

function paintSlim(brush: Brush, place: Place, look: Look, detail: Detail): void {
  const { pen, theme, type, hatch } = brush;
  const { figure, i, x: left, y: top, width, height } = place;
  filled(pen, place, 4, theme.card);
  pen.fillStyle = hatch;
  pen.fill();
  const colour = look.colour[i];
  if (colour) filled(pen, { x: left, y: top, width: 4, height }, [4, 0, 0, 4], colour);
  lined(pen, place, 4, theme.line);
  if (!detail.lines) return;
  const middle = top + height / 2 + 0.5;
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  text(brush, figure.face.title, left + 9, middle, FONT.line(type), theme.ink);
  const value = look.text[i];
  if (!value) return;
  pen.textAlign = "right";
  text(brush, value, left + width - 8, middle, FONT.value(type, look.italic), theme.ink);
}

function paintPill(brush: Brush, place: Place, detail: Detail): void {
  const { pen, theme, type } = brush;
  const { figure, x: left, y: top, width, height } = place;
  filled(pen, place, height / 2, theme.tag);
  lined(pen, place, height / 2, theme.line);
  if (!detail.titles) return;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  text(brush, figure.face.title, left + width / 2, top + height / 2 + 0.5, FONT.line(type), theme.ink);
}

/** A small square with a plus where a box can be opened, with a minus where it can be folded. */
function paintFold({ pen, theme }: Brush, place: Place, look: Look): void {
  const { figure, i } = place;
  const square = foldRect({ width: place.width, shape: figure.shape });
  const { side } = FOLD;
  const [x, y] = [place.x + square.x, place.y + square.y];
  const bar = look.colour[i] ?? (look.families ? theme.family[figure.box.family] : null);
  const onBar = figure.shape === "node" && !figure.reason && bar;
  const ink = onBar ? inkOn(onBar) : theme.muted;
  pen.beginPath();
  pen.roundRect(x + 0.5, y + 0.5, side - 1, side - 1, 3);
  if (!onBar) {
    pen.fillStyle = theme.card;
    pen.fill();
  }
  pen.moveTo(x + 3.5, y + side / 2);
  pen.lineTo(x + side - 3.5, y + side / 2);
  if (figure.fold === "+") {
    pen.moveTo(x + side / 2, y + 3.5);
    pen.lineTo(x + side / 2, y + side - 3.5);
  }
  pen.lineWidth = 1.1;
  pen.strokeStyle = ink;
  pen.stroke();
}

/** How much of a badge lies inside its box: the rest fits between two boxes. */
const inside = (width: number): number => Math.max(4, width - GAP.node + 3);

/**
 * A short text on the edge of a box, such as the layer's number: what the colour says, for those who cannot tell it.
 * It stands where no wire leaves and no label of a wire stands: at the right, in a graph from left to right on top.
 */
function paintBadge(brush: Brush, place: Place, words: string, look: Look): void {
  const { pen, theme, type, across } = brush;
  const { figure, x, y, width: wide, height: tall } = place;
  if (figure.shape === "card" && words === figure.box.precision) return;
  const font = FONT.badge(type);
  const width = Math.ceil(type.width(words, font)) + 9;
  const height = 13;
  const row = {
    node: NODE.bar,
    frame: FRAME.head,
    card: CARD.row + 10,
    group: CARD.row,
    pill: tall,
    slim: tall,
  };
  const rect = across
    ? { x: x + wide - width + 5, y: y - height + 4, width, height }
    : {
        x: x + wide - inside(width),
        y: y + Math.min(tall, row[figure.shape]) / 2 - height / 2,
        width,
        height,
      };
  filled(pen, rect, height / 2, theme.card);
  lined(pen, rect, height / 2, look.colour[place.i] ?? theme.line, 1.2);
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  text(brush, words, rect.x + width / 2, rect.y + height / 2 + 0.5, font, theme.ink);
}

import type { Box, OpChip, Reason } from "../../core/contract";
import { nodesRunBy, REASON_GLYPH, shortOp } from "../../core/format";
import type { Mapping } from "../../core/mapping";
import { FRAME } from "../layout/types";
import type { VisibleGraph } from "../visible_graph";
import type { Type } from "./text";

export const NODE = { bar: 22, line: 14, foot: 5, narrow: 116, wide: 210, value: 84, sign: 16 };
export const CARD = { bar: 7, pad: 9, chip: 17, chipGap: 4, row: 20, narrow: 158, wide: 316, line: 13 };
export const SLIM = { height: 20, narrow: 190, wide: 280 };
export const PILL = { height: 24, narrow: 64, wide: 200 };
export const STACK = 6;
export const FOLD = { side: 14, edge: 5 };
const MOST_LINES = 3;

export type Shape = "node" | "card" | "slim" | "pill" | "group" | "frame";

export interface Face {
  title: string;
  lines: string[];
  chips: { text: string; x: number; width: number; family: Box["family"] }[];
  /** "3 → 1" on a card of several operators. */
  fused: string;
}

/** A box with its size. Its texts are cut to fit when they are first painted: most are never seen. */
export class Figure {
  fold: "" | "+" | "−" = "";
  missing: Reason | "" = "";
  readonly box: Box;
  readonly shape: Shape;
  readonly width: number;
  readonly height: number;
  readonly #make: () => Face;
  #face: Face | null = null;

  constructor(box: Box, shape: Shape, width: number, height: number, make: () => Face) {
    this.box = box;
    this.shape = shape;
    this.width = width;
    this.height = height;
    this.#make = make;
  }

  get reason(): string {
    return REASON_GLYPH[this.missing];
  }

  get reasonWord(): string {
    return this.missing;
  }

  get face(): Face {
    this.#face ??= this.#make();
    return this.#face;
  }
}

export const FONT = {
  title: (type: Type): string => type.font(12, 600),
  chip: (type: Type): string => type.font(10.5, 600),
  line: (type: Type): string => type.font(10.5),
  value: (type: Type, italic: boolean): string => type.font(11.5, 500, italic),
  label: (type: Type): string => type.font(10),
  badge: (type: Type): string => type.font(9, 600),
};

export function figures(visible: VisibleGraph, links: Mapping, type: Type): Figure[] {
  return visible.graph.boxes.map((_, i) => figureAt(visible, i, links, type));
}

/** The same figures for another engine: those alone are made anew whose sign changes. Sizes stay. */
export function updateReasons(
  old: readonly Figure[],
  visible: VisibleGraph,
  links: Mapping,
  type: Type,
): Figure[] {
  return old.map((figure, i) =>
    figure.shape === "node" && missing(figure.box, links) !== figure.missing
      ? figureAt(visible, i, links, type)
      : figure,
  );
}

const missing = (box: Box, links: Mapping): Reason | "" => links.unmapped(box.id)?.reason ?? "";

function figureAt(visible: VisibleGraph, i: number, links: Mapping, type: Type): Figure {
  const figure = figureOf(visible, visible.graph.boxes[i]!, i, links, type);
  if (visible.foldable.has(i)) figure.fold = visible.frames.has(i) ? "−" : "+";
  return figure;
}

function figureOf(visible: VisibleGraph, box: Box, i: number, links: Mapping, type: Type): Figure {
  if (visible.frames.has(i)) return frame(box, type);
  if (box.kind === "group") return group(box, type);
  if (box.kind === "input" || box.kind === "output") return pill(box, type);
  if (box.kind === "node") return node(box, links, type, visible.foldable.has(i));
  return box.slim ? slim(box, type) : card(box, type);
}

const clamp = (value: number, low: number, high: number): number =>
  Math.min(high, Math.max(low, Math.ceil(value)));

const PLAIN = { lines: [], chips: [], fused: "" };

const widest = (lines: readonly string[], type: Type): number =>
  lines.reduce((most, line) => Math.max(most, type.width(line.slice(0, 60), FONT.line(type))), 0);

const nameOf = (box: Box): string => (box.kind === "node" ? box.op : box.title || box.op);

function frame(box: Box, type: Type): Figure {
  const name = nameOf(box);
  const natural = type.width(name.slice(0, 60), FONT.title(type)) + widest(box.lines.slice(0, 1), type) + 54;
  const width = clamp(natural, NODE.narrow, CARD.wide);
  const figure = new Figure(box, "frame", width, FRAME.head + FRAME.pad, () => ({
    ...PLAIN,
    title: type.fit(name, FONT.title(type), width - 34),
    lines: box.lines.slice(0, 1),
  }));
  return figure;
}

function group(box: Box, type: Type): Figure {
  const ops = box.chips.length ? chipRow(box.chips, type, CARD.wide - CARD.bar - 2 * CARD.pad) : null;
  const lines = box.lines.slice(0, MOST_LINES);
  const name = type.width(nameOf(box).slice(0, 60), FONT.title(type)) + 2 * CARD.pad + FOLD.side + 18;
  const natural = Math.max(name, ops?.end ?? 0, widest(lines, type) + CARD.bar + 2 * CARD.pad);
  const width = clamp(natural, CARD.narrow, CARD.wide);
  const height = 5 + CARD.row * (ops ? 2 : 1) + lines.length * CARD.line + (lines.length ? 5 : 2) + STACK;
  const room = width - CARD.bar - 2 * CARD.pad + 4;
  return new Figure(box, "group", width, height, () => ({
    title: type.fit(nameOf(box), FONT.title(type), room - FOLD.side - 6),
    lines: lines.map((line) => type.fit(line, FONT.line(type), room)),
    chips: ops?.chips ?? [],
    fused: "",
  }));
}

function pill(box: Box, type: Type): Figure {
  const font = FONT.line(type);
  const name = box.title || box.op;
  const width = clamp(type.width(name.slice(0, 60), font) + 28, PILL.narrow, PILL.wide);
  return new Figure(box, "pill", width, PILL.height, () => ({
    ...PLAIN,
    title: type.fit(name, font, width - 22),
  }));
}

function node(box: Box, links: Mapping, type: Type, folds: boolean): Figure {
  const op = box.op.replace(/Normalization$/, "Norm");
  const lines = box.lines.slice(0, MOST_LINES);
  const spare = folds ? 2 * (FOLD.side + 2) : 0;
  // A sign before the name and a number beside the short name must find room, whichever engine and colour is chosen:
  // no box changes its size when an engine arrives.
  const name = type.width(op.slice(0, 60), FONT.title(type)) + NODE.sign + 26 + spare;
  const valued = type.width(shortOp(box.op), FONT.title(type)) + NODE.value + spare / 2;
  const width = clamp(Math.max(name, valued, widest(lines, type) + 18), NODE.narrow, NODE.wide);
  const height = NODE.bar + (lines.length ? lines.length * NODE.line + NODE.foot : 0);
  const figure = new Figure(box, "node", width, height, () => ({
    ...PLAIN,
    title: type.fit(figure.reason ? `${figure.reason} ${op}` : op, FONT.title(type), width - 14 - spare),
    lines: lines.map((line) => type.fit(line, FONT.line(type), width - 12)),
  }));
  figure.missing = missing(box, links);
  return figure;
}

function slim(box: Box, type: Type): Figure {
  const font = FONT.line(type);
  const name = [box.title || box.op, ...box.lines.slice(0, 1)].join("  ");
  const width = clamp(type.width(name.slice(0, 80), font) + 86, SLIM.narrow, SLIM.wide);
  return new Figure(box, "slim", width, SLIM.height, () => ({
    ...PLAIN,
    title: type.fit(name, font, width - 84),
  }));
}

/** Operators as chips in one row, as many as there is room for; `end` is where the row ends. */
function chipRow(ops: readonly OpChip[], type: Type, room: number): { chips: Face["chips"]; end: number } {
  const font = FONT.chip(type);
  const chips: Face["chips"] = [];
  const start = CARD.bar + CARD.pad - 2;
  let x = start;
  for (let k = 0; k < ops.length; k++) {
    const remaining = ops.length - k;
    const text = type.fit(shortOp(ops[k]!.op), font, 130);
    const width = Math.ceil(type.width(text, font)) + 11;
    const more = remaining > 1 ? 30 : 0;
    if (k > 0 && x - start + width + more > room) {
      const rest = `+${remaining}`;
      chips.push({ text: rest, x, width: Math.ceil(type.width(rest, font)) + 11, family: "other" });
      x += chips.at(-1)!.width + CARD.chipGap;
      break;
    }
    chips.push({ text, x, width, family: ops[k]!.family });
    x += width + CARD.chipGap;
  }
  return { chips, end: x + CARD.pad - CARD.chipGap };
}

function card(box: Box, type: Type): Figure {
  const ops = box.chips.length
    ? box.chips
    : [{ op: box.op, family: box.family, node: "", role: "work" as const, title: box.op }];
  const run = nodesRunBy(box).length;
  const fused = run > 1 ? `${run} → 1` : "";
  const tail = fused ? type.width(fused, FONT.line(type)) + 14 : 0;
  const { chips, end } = chipRow(ops, type, CARD.wide - CARD.bar - 2 * CARD.pad - tail);
  const lines = box.lines.slice(0, 2);
  const natural = Math.max(end + tail, widest(lines, type) + CARD.bar + 2 * CARD.pad);
  const width = clamp(natural, CARD.narrow, CARD.wide);
  const height = 5 + 2 * CARD.row + lines.length * CARD.line + (lines.length ? 3 : 0);
  const room = width - CARD.bar - 2 * CARD.pad;
  return new Figure(box, "card", width, height, () => ({
    title: type.fit(box.title, FONT.line(type), room - 46),
    chips,
    fused,
    lines: lines.map((line) => type.fit(line, FONT.line(type), room + 4)),
  }));
}

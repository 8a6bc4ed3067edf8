import type { Box, Graph } from "../contract";
import { REASON_GLYPH, shortOp } from "../format";
import type { Links } from "../links";
import type { Type } from "./text";

/** Sizes in pixels at scale 1. */
export const NODE = { bar: 22, line: 14, foot: 5, narrow: 116, wide: 210, value: 84 };
export const CARD = { bar: 7, pad: 9, chip: 17, chipGap: 4, row: 20, narrow: 158, wide: 316, line: 13 };
export const SLIM = { height: 20, narrow: 190, wide: 280 };
export const PILL = { height: 24, narrow: 64, wide: 200 };
const MOST_LINES = 3;

export type Shape = "node" | "card" | "slim" | "pill";

/** A box with its size and all its texts cut to fit: what the painter needs, made once. */
export interface Figure {
  box: Box;
  shape: Shape;
  width: number;
  height: number;
  title: string;
  lines: string[];
  chips: { text: string; x: number; width: number; family: Box["family"] }[];
  /** "3 → 1" on a card of several operators. */
  fused: string;
  /** Glyph of the reason when a node has no layer, with the word for it. */
  reason: string;
  reasonWord: string;
}

export const FONT = {
  title: (type: Type): string => type.font(12, 600),
  chip: (type: Type): string => type.font(10.5, 600),
  line: (type: Type): string => type.font(10.5),
  value: (type: Type, italic: boolean): string => type.font(11.5, 500, italic),
  label: (type: Type): string => type.font(10),
};

export function figures(graph: Graph, links: Links, type: Type): Figure[] {
  return graph.boxes.map((box) => {
    if (box.kind === "input" || box.kind === "output") return pill(box, type);
    if (box.kind === "node") return node(box, links, type);
    return box.slim ? slim(box, type) : card(box, type);
  });
}

const clamp = (value: number, low: number, high: number): number =>
  Math.min(high, Math.max(low, Math.ceil(value)));

function empty(box: Box, shape: Shape, width: number, height: number): Figure {
  return {
    box,
    shape,
    width,
    height,
    title: "",
    lines: [],
    chips: [],
    fused: "",
    reason: "",
    reasonWord: "",
  };
}

function pill(box: Box, type: Type): Figure {
  const font = FONT.line(type);
  const name = box.title || box.op;
  const width = clamp(type.width(name.slice(0, 60), font) + 28, PILL.narrow, PILL.wide);
  return { ...empty(box, "pill", width, PILL.height), title: type.fit(name, font, width - 22) };
}

function node(box: Box, links: Links, type: Type): Figure {
  const unmapped = links.unmapped(box.id);
  const reason = unmapped ? REASON_GLYPH[unmapped.reason] : "";
  const op = box.op.replace(/Normalization$/, "Norm");
  const title = reason ? `${reason} ${op}` : op;
  const lines = box.lines.slice(0, MOST_LINES);
  const widest = lines.reduce(
    (most, line) => Math.max(most, type.width(line.slice(0, 60), FONT.line(type))),
    0,
  );
  const name = type.width(title.slice(0, 60), FONT.title(type)) + 26;
  // A number beside the short name must find room, whichever way the pane is coloured.
  const valued = type.width(shortOp(box.op), FONT.title(type)) + NODE.value;
  const width = clamp(Math.max(name, valued, widest + 18), NODE.narrow, NODE.wide);
  const height = NODE.bar + (lines.length ? lines.length * NODE.line + NODE.foot : 0);
  return {
    ...empty(box, "node", width, height),
    title: type.fit(title, FONT.title(type), width - 14),
    lines: lines.map((line) => type.fit(line, FONT.line(type), width - 12)),
    reason,
    reasonWord: unmapped?.reason ?? "",
  };
}

function slim(box: Box, type: Type): Figure {
  const font = FONT.line(type);
  const name = [box.title || box.op, ...box.lines.slice(0, 1)].join("  ");
  const width = clamp(type.width(name.slice(0, 80), font) + 86, SLIM.narrow, SLIM.wide);
  return { ...empty(box, "slim", width, SLIM.height), title: type.fit(name, font, width - 84) };
}

function card(box: Box, type: Type): Figure {
  const font = FONT.chip(type);
  const ops = box.chips.length ? box.chips : [{ op: box.op, family: box.family, node: "" }];
  const fused = box.chips.length > 1 ? `${box.chips.length} → 1` : "";
  const tail = fused ? type.width(fused, FONT.line(type)) + 14 : 0;
  const room = CARD.wide - CARD.bar - 2 * CARD.pad - tail;
  const chips: Figure["chips"] = [];
  let x = CARD.bar + CARD.pad - 2;
  const start = x;
  for (let k = 0; k < ops.length; k++) {
    const left = ops.length - k;
    const text = type.fit(shortOp(ops[k]!.op), font, 130);
    const width = Math.ceil(type.width(text, font)) + 11;
    const more = left > 1 ? 30 : 0;
    if (k > 0 && x - start + width + more > room) {
      const rest = `+${left}`;
      chips.push({ text: rest, x, width: Math.ceil(type.width(rest, font)) + 11, family: "other" });
      x += chips.at(-1)!.width + CARD.chipGap;
      break;
    }
    chips.push({ text, x, width, family: ops[k]!.family });
    x += width + CARD.chipGap;
  }
  const lines = box.lines.slice(0, 2);
  const widest = lines.reduce(
    (most, line) => Math.max(most, type.width(line.slice(0, 60), FONT.line(type))),
    0,
  );
  const wanted = Math.max(x + tail + CARD.pad - CARD.chipGap, widest + CARD.bar + 2 * CARD.pad);
  const width = clamp(wanted, CARD.narrow, CARD.wide);
  const height = 5 + 2 * CARD.row + lines.length * CARD.line + (lines.length ? 3 : 0);
  return {
    ...empty(box, "card", width, height),
    title: type.fit(box.title, FONT.line(type), width - CARD.bar - 2 * CARD.pad - 46),
    chips,
    fused,
    lines: lines.map((line) => type.fit(line, FONT.line(type), width - CARD.bar - 2 * CARD.pad + 4)),
  };
}

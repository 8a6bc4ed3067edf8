import type { Box, Evidence, Family, OpChip, Origin, Reason, Role } from "./contract";

export const NONE = "—";

export const GLYPH: Record<Origin, string> = {
  measured: "●",
  reported: "◐",
  estimated: "○",
  predicted: "◌",
};

export const REASON_GLYPH: Record<Reason | "", string> = {
  "": "",
  folded: "◇",
  view: "↷",
  shape: "#",
  dead: "✕",
  unknown: "?",
};

export const REASON_WORDS: Record<Reason | "", string> = {
  "": "",
  folded: "folded to a constant",
  view: "view, writes in place",
  shape: "shape arithmetic",
  dead: "dead, nothing reads it",
  unknown: "unknown",
};

export const NO_MODEL = "No ONNX model was given: give model= or drop one";

export const ROLE_WORDS: Record<Role, string> = {
  work: "runs",
  body: "runs a body of",
  scale: "scales what another layer computes for",
  bias: "adds the bias of",
  Q: "quantizes for",
  DQ: "dequantizes for",
  "Q/DQ": "quantizes and dequantizes for",
  cast: "casts for",
  layout: "lays out data for",
  control: "controls",
};
export const EVIDENCE_WORDS: Record<Evidence, string> = {
  declared: "declared by the compiler",
  inferred: "inferred from inputs and outputs",
  merged: "merged with a sibling",
  predicted: "predicted by a rule",
};

/** Three significant digits, with a true minus sign; "—" for what is not a number. */
export function number(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  if (value === 0) return "0";
  const size = Math.abs(value);
  let text: string;
  if (size >= 1e7 || size < 1e-4) {
    const [mantissa, exponent] = size.toExponential(2).split("e");
    text = `${mantissa}e${Number(exponent)}`;
  } else {
    const digits = Math.max(0, 2 - Math.floor(Math.log10(Number(size.toPrecision(3)))));
    text = Number(size.toPrecision(3)).toFixed(digits);
  }
  return value < 0 ? `−${text}` : text;
}

/** For units that scale: from which magnitude on, divided by what, under which name. */
const STEPS: Record<string, [number, number, string][]> = {
  ms: [
    [1e3, 1e3, "s"],
    [1, 1, "ms"],
    [0, 1e-3, "µs"],
  ],
  B: [
    [2 ** 30, 2 ** 30, "GiB"],
    [2 ** 20, 2 ** 20, "MiB"],
    [2 ** 10, 2 ** 10, "KiB"],
    [0, 1, "B"],
  ],
};

/** A number with its unit; times and sizes move to the unit that reads best, such as 1.90 µs. */
export function quantity(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const step = value === 0 ? undefined : STEPS[unit]?.find(([from]) => Math.abs(value) >= from);
  if (step) return `${number(value / step[1])} ${step[2]}`;
  if (!unit) return Number.isInteger(value) ? String(value).replace("-", "−") : number(value);
  return `${number(value)} ${unit}`;
}

/** The unit of a column of times in milliseconds, by the longest of them, and what its numbers are divided by. */
export function columnUnit(times: readonly (number | null)[]): [string, number] {
  const longest = Math.max(0, ...times.map((time) => time ?? 0));
  const [, scale, unit] = STEPS.ms!.find(([from]) => longest >= from)!;
  return [unit, scale];
}

export const thousands = (count: number): string => count.toLocaleString("en").replaceAll(",", "\u2009");

export const percent = (share: number): string => quantity(100 * share, "%");

export function withSpread(value: number, spread: number | null, unit: string): string {
  const text = quantity(value, unit);
  if (spread === null || !Number.isFinite(spread) || !Number.isFinite(value)) return text;
  const step = value === 0 ? undefined : STEPS[unit]?.find(([from]) => Math.abs(value) >= from);
  const [amount, ...name] = text.split(" ");
  const half = Number((spread / (step?.[1] ?? 1)).toPrecision(2));
  return [amount, "±", half < 1e-4 ? number(half) : String(half), ...name].join(" ");
}

/** A number with the glyph of its origin, where it is known. */
export const withOrigin = (origin: Origin | undefined, text: string): string =>
  origin && text !== NONE ? `${GLYPH[origin]} ${text}` : text;

export const originOf = (source: string): Origin | undefined =>
  (Object.keys(GLYPH) as Origin[]).find((name) => source.startsWith(name));

export function difference(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  const text = size === 0 ? "0.0" : size >= 0.05 ? size.toFixed(1) : number(size);
  const sign = value < 0 ? "−" : value > 0 ? "+" : "±";
  return `${sign}${text} ${unit === "%" ? "pt" : unit}`.trimEnd();
}

export function elapsed(seconds: number): string {
  const s = Math.max(0, seconds);
  return s < 60 ? `${s.toFixed(1)} s` : `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
}

export function shorten(text: string, limit: number): string {
  return text.length <= limit ? text : `${text.slice(0, limit - 1)}…`;
}

export const printable = (text: string): string => text.replace(/\p{Cc}+/gu, " ");

/** The last characters of a long name, which tell it from others of the same scope. */
export function ending(text: string, limit: number): string {
  if (text.length <= limit) return text;
  const tail = text.slice(1 - limit);
  // Of names that are joined, only whole ones are kept, where that leaves enough.
  const at = tail.indexOf(" + ");
  return `…${at > 0 && at < tail.length / 2 ? tail.slice(at) : tail}`;
}

export const brief = (name: string): string =>
  name
    .replace(/_output_0(?=_|$)/, "")
    .replace(/_QuantizeLinear$/, " Q")
    .replace(/_DequantizeLinear$/, " DQ");

export const uncapitalised = (title: string): string =>
  /^[A-Z][a-z]/.test(title) ? title[0]!.toLowerCase() + title.slice(1) : title;

export function plural(count: number, word: string): string {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

const SHORT: Record<string, string> = {
  AveragePool: "AvgPool",
  BatchNormalization: "BN",
  DequantizeLinear: "DQ",
  GlobalAveragePool: "GAP",
  InstanceNormalization: "InstNorm",
  LayerNormalization: "LN",
  QuantizeLinear: "Q",
  Relu: "ReLU",
};

export function shortOp(op: string): string {
  return SHORT[op] ?? shorten(op, 16);
}

/** The nodes that a card runs; its other chips say what it does for nodes of other layers. */
export const nodesRunBy = ({ chips }: Box): OpChip[] => chips.filter(({ role }) => role === "work");

export const colourOf = (box: Box): Family => (nodesRunBy(box)[0] ?? box.chips[0] ?? box).family;

export const titleOf = (box: Box): string =>
  (box.kind === "layer" && box.chips.length ? opsOf(box, 12) : box.title) || box.op;

export function opsOf({ chips, op, slim, title }: Box, most: number): string {
  const ops = chips.slice(0, most).map((chip) => shortOp(chip.op));
  if (chips.length > most) ops.push(`+${chips.length - most}`);
  return ops.join(" · ") || (slim ? title : shortOp(op));
}

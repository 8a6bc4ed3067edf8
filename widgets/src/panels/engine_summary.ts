import type { Coverage, Slice, Summary, Transition } from "../core/contract";
import { originOf, plural, quantity, withOrigin } from "../core/format";

/** Slices with what their bars show: their times, or how many layers they are where no times are known. */
export function barsOf(slices: readonly Slice[]): { slice: Slice; length: number }[] {
  const timed = slices.some(({ milliseconds }) => milliseconds !== null);
  const amount = ({ milliseconds, layers }: Slice): number => (timed ? (milliseconds ?? 0) : layers.length);
  const most = Math.max(...slices.map(amount), 0);
  return slices
    .toSorted((a, b) => amount(b) - amount(a) || b.layers.length - a.layers.length)
    .map((slice) => ({ slice, length: most > 0 ? amount(slice) / most : 0 }));
}

/** Widest type first, so that what loses precision stands above the diagonal. */
const WIDTHS = "fp64 int64 fp32 tf32 int32 bf16 fp16 fp8 int8 uint8 fp4 int4".split(" ");

export function byWidth(a: string, b: string): number {
  const place = (name: string): number =>
    name === "" ? WIDTHS.length + 1 : (WIDTHS.indexOf(name) + 1 || WIDTHS.length + 1) - 1;
  return place(a) - place(b) || a.localeCompare(b);
}

export interface Matrix {
  reads: string[];
  writes: string[];
  cells: Map<string, Transition>;
  most: number;
  timed: boolean;
}

export const cellKey = (reads: string, writes: string): string => `${reads} ${writes}`;

export const weightOf = ({ milliseconds, layers }: Transition, timed: boolean): number =>
  timed ? (milliseconds ?? 0) : layers.length;

export function matrixOf(transitions: readonly Transition[]): Matrix {
  const timed = transitions.some(({ milliseconds }) => milliseconds !== null);
  return {
    reads: [...new Set(transitions.map(({ before }) => before))].sort(byWidth),
    writes: [...new Set(transitions.map(({ after }) => after))].sort(byWidth),
    cells: new Map(transitions.map((each) => [cellKey(each.before, each.after), each])),
    most: Math.max(...transitions.map((each) => weightOf(each, timed)), 0),
    timed,
  };
}

export interface Fact {
  id: string;
  text: string;
  why: string;
}

/** How far the mapping explains the engine. */
export function coverageFact(coverage: Coverage): Fact {
  const { nodes, all_nodes, explained, layers, all_layers, moves, declared, pairs } = coverage;
  const whole = `${layers + moves} of ${plural(all_layers, "layer")}`;
  if (!all_nodes)
    return {
      id: "coverage",
      text: plural(all_layers, "layer"),
      why: "No ONNX model was given, so that layers have no nodes: give model= or drop one",
    };
  return {
    id: "coverage",
    text: `${nodes + explained} of ${plural(all_nodes, "node")} and ${whole} explained`,
    why: [
      !pairs
        ? "no layer names a node of this model"
        : declared === pairs
          ? `all ${plural(pairs, "link")} declared by the compiler`
          : `${declared} of ${plural(pairs, "link")} declared by the compiler, the others inferred`,
      `${plural(nodes, "node")} in layers, ${explained} more with a reason for having none`,
      `${plural(layers, "layer")} with nodes, ${moves} more that only move or quantize data`,
    ].join("\n"),
  };
}

/** Below this difference the sum of the layers and the latency agree. */
const ALIKE = 0.02;

/** What the layers' times add up to, and how that compares to the latency; null where no times are known. */
export function timeFact({ summed, total, ratio, source, processor }: Summary): Fact | null {
  const origin = originOf(source);
  const timeText = (time: number): string => withOrigin(origin, quantity(time, "ms"));
  const where = [processor, source].filter(Boolean).join(": ");
  if (summed === null)
    return total === null
      ? null
      : { id: "ratio", text: `latency ${timeText(total)}`, why: `${where}\nNo times of layers were given` };
  if (total === null || ratio === null)
    return {
      id: "ratio",
      text: `layers sum to ${timeText(summed)}`,
      why: `${where}\nThe latency of whole inferences was not given`,
    };
  const reason =
    ratio > 1 + ALIKE
      ? "Overlap lost, profiler's overhead added"
      : ratio < 1 - ALIKE
        ? "The rest is no layer's: launches, copies, waits between layers"
        : "Layers and latency agree";
  return {
    id: "ratio",
    text: `layers sum to ${timeText(summed)}, ${Math.round(100 * ratio)} % of the latency ${timeText(total)}`,
    why: `${reason}\n${where}`,
  };
}

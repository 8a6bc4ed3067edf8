import { type Chip, VARIANT_COLUMNS, type VariantColumn } from "../core/contract";
import {
  columnUnit,
  difference,
  GLYPH,
  number,
  originOf,
  plural,
  quantity,
  shorten,
  uncapitalised,
} from "../core/format";

/** A column of the table of variants, with a text for each variant, empty where it has none. */
export interface Column {
  key: VariantColumn;
  heading: string;
  meaning: string;
  text(chip: Chip): string;
  /** Where a number comes from, or what it leaves out. */
  hover(chip: Chip): string;
}

type Cells = Pick<Column, "text" | "hover"> & { heading?: string };

const LONGEST = 22;
/** What is left out first where there is no room for all; the name stays. */
const DROPPED: readonly VariantColumn[] = [
  "calibrator",
  "target",
  "layers",
  "time",
  "sqnr",
  "delta",
  "score",
  "estimate",
];
/** Of headings and of texts in the table, in pixels. */
const [HEAD_LETTER, LETTER, PADDING] = [6.2, 7, 16];
/** A name has a pin, a warning or a turning circle beside it. */
const MARKS = 22;
const NOTHING = () => "";

/** The columns that have a value, as many as have room: `room` is in pixels. */
export function variantColumns(chips: readonly Chip[], room: number): Column[] {
  const built = chips.filter(({ status }) => status === "ready");
  const cells = cellsOf(built);
  let columns = (Object.keys(VARIANT_COLUMNS) as VariantColumn[])
    .map((key): Column => {
      const [heading, meaning] = VARIANT_COLUMNS[key];
      return { key, meaning, heading, ...cells[key] };
    })
    .filter(({ key, text }) => key === "variant" || built.some((chip) => text(chip)));
  const widthOf = ({ key, heading, text }: Column): number =>
    Math.max(HEAD_LETTER * heading.length, ...chips.map((chip) => LETTER * text(chip).length)) +
    PADDING +
    (key === "variant" ? MARKS : 0);
  for (const key of DROPPED) {
    if (columns.reduce((sum, column) => sum + widthOf(column), 0) <= room) break;
    columns = columns.filter((column) => column.key !== key);
  }
  return columns;
}

export const nameOf = ({ label, about }: Chip): string => [label, about].filter(Boolean).join("  ");

function cellsOf(built: readonly Chip[]): Record<VariantColumn, Cells> {
  const only = (of: (chip: Chip) => string): string | undefined => {
    const values = new Set(built.map(of).filter(Boolean));
    return values.size === 1 ? [...values][0] : undefined;
  };
  const [estimateUnit, estimateScale] = columnUnit(built.map(({ estimate }) => estimate));
  const [timeUnit, timeScale] = columnUnit(built.map(({ time }) => time));
  const gpu = only((chip) => chip.estimate_gpu);
  const processor = only((chip) => (chip.time === null ? "" : processorOf(chip)));
  const origin = only(({ time_source }) => originOf(time_source) ?? "");
  const kind = only(({ counted }) => counted);
  const unit = only(({ score_unit }) => score_unit);
  const baseline = built.find((chip) => chip.baseline)?.label ?? "";
  const headed = (glyph: string, heading: string, unit: string | undefined): string =>
    [glyph, heading, unit && `(${unit})`].filter(Boolean).join(" ");
  const words = (key: VariantColumn): string => VARIANT_COLUMNS[key][0];
  return {
    variant: { text: nameOf, hover: NOTHING },
    calibrator: { text: ({ calibrator }) => calibrator, hover: NOTHING },
    target: { text: ({ target }) => shorten(target, LONGEST), hover: ({ target }) => target },
    layers: {
      heading: words("layers").replace("layers", `${kind ?? "layer"}s`),
      text: ({ nodes, layers, counted, predicted }) =>
        [nodes > 0 && `${nodes} →`, predicted && GLYPH.predicted, layers, !kind && `${counted}s`]
          .filter(Boolean)
          .join(" "),
      hover: ({ nodes, layers, counted, predicted }) =>
        [
          nodes && `${plural(nodes, "node")} once prepared for this precision`,
          plural(layers, counted),
          predicted && PREDICTED,
        ]
          .filter(Boolean)
          .join(", "),
    },
    estimate: {
      heading: headed(GLYPH.estimated, words("estimate"), estimateUnit),
      text: ({ estimate, estimate_gpu }) =>
        !estimate_gpu
          ? ""
          : [estimate === null ? "not measured" : number(estimate / estimateScale), !gpu && estimate_gpu]
              .filter(Boolean)
              .join(" "),
      hover: ({ estimate, estimate_gpu, estimate_source }) =>
        [estimate !== null && `${quantity(estimate, "ms")} on ${estimate_gpu}`, estimate_source]
          .filter(Boolean)
          .join(", "),
    },
    time: {
      heading: headed(
        origin ? GLYPH[origin as keyof typeof GLYPH] : "",
        processor ? `${processor} ${uncapitalised(words("time"))}` : words("time"),
        timeUnit,
      ),
      text: (chip) =>
        chip.time === null
          ? ""
          : [
              !origin && glyphOf(chip.time_source),
              number(chip.time / timeScale),
              !processor && processorOf(chip),
            ]
              .filter(Boolean)
              .join(" "),
      hover: ({ time, time_source }) => (time === null ? "" : `${quantity(time, "ms")}, ${time_source}`),
    },
    score: {
      heading: headed(GLYPH.measured, words("score"), unit),
      text: ({ score, score_unit }) =>
        score === null ? "" : unit === undefined ? quantity(score, score_unit) : number(score),
      hover: ({ score, score_told, score_source }) =>
        score === null ? "" : `${score_told} (${score_source})`,
    },
    sqnr: {
      heading: headed(GLYPH.measured, words("sqnr"), "dB"),
      text: ({ sqnr, sqnr_told }) => (sqnr === null ? sqnr_told : number(sqnr)),
      hover: ({ sqnr_told }) => sqnr_told,
    },
    delta: {
      heading: headed(
        GLYPH.measured,
        baseline && baseline.length <= LONGEST ? `To ${baseline}` : words("delta"),
        unit === "%" ? "pt" : unit,
      ),
      text: ({ score_delta: delta, score_unit, baseline: own }) =>
        delta === null || own ? "" : difference(delta, unit === undefined ? score_unit : ""),
      hover: ({ score_told }) => score_told,
    },
  };
}

const PREDICTED = "predicted by the documented rules of TensorRT: no compiler made these layers";

const glyphOf = (source: string): string => {
  const origin = originOf(source);
  return origin ? GLYPH[origin] : "";
};

const processorOf = ({ about, time_source }: Chip): string =>
  /\b[CG]PU\b/.exec(time_source)?.[0] ?? /\b[CG]PU\b/.exec(about)?.[0] ?? "";

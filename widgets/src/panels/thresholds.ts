import type { Calibrated, CalibratedValue, Ranked, Threshold } from "../core/contract";

export type Measure = "sqnr" | "amax" | "clipped";

/** Every calibrator that has a threshold, in the kernel's order. */
export const calibratorsOf = ({ values }: Calibrated): string[] => [
  ...new Set(values.flatMap(({ thresholds }) => thresholds.map(({ calibrator }) => calibrator))),
];

export const thresholdOf = ({ thresholds }: CalibratedValue, calibrator: string): Threshold | undefined =>
  thresholds.find((threshold) => threshold.calibrator === calibrator);

/** The fixed method whose threshold the calibrator has: what it took where it chooses among them, otherwise itself. */
export const methodOf = (value: CalibratedValue, calibrator: string): string =>
  thresholdOf(value, calibrator)?.chosen || calibrator;

/** The threshold of the calibrator that chooses among the others, if there is one. */
export const choiceOf = ({ thresholds }: CalibratedValue): Threshold | undefined =>
  thresholds.find(({ chosen }) => chosen !== "");

/** The calibrators with the best SQNR; none where all are alike or one is free of noise. */
export function best({ thresholds }: CalibratedValue): Set<string> {
  const most = Math.max(...thresholds.map(({ sqnr }) => sqnr ?? Number.POSITIVE_INFINITY));
  const found = thresholds.filter(({ sqnr }) => sqnr === most);
  return new Set(found.length < thresholds.length ? found.map(({ calibrator }) => calibrator) : []);
}

/** The values that one of the nodes quantizes. */
export function readBy(values: readonly CalibratedValue[], nodes: readonly string[]): CalibratedValue[] {
  const wanted = new Set(nodes);
  return values.filter(({ readers }) => readers.some((node) => wanted.has(node)));
}

/** The value whose histogram is shown: the one picked, unless the selection has moved on to others. */
export function shownOf(
  values: readonly CalibratedValue[],
  marked: readonly CalibratedValue[],
  picked: string,
): CalibratedValue | undefined {
  const among = marked.length ? marked : values;
  return among.find(({ value }) => value === picked) ?? among[0];
}

/** The calibrators to try: in the order of their ranking, or as they are where none was tried yet. */
export function ranked(known: Calibrated): Ranked[] {
  if (known.ranking.length) return known.ranking;
  return calibratorsOf(known).map((calibrator) => ({
    calibrator,
    precision: "int8",
    score: null,
    delta: null,
    sqnr: null,
    samples: 0,
    source: "",
    note: "",
  }));
}

export interface Label {
  x: number;
  from: number;
  to: number;
  row: number;
}

/**
 * Places labels beside marks, so that none covers another or leaves the width, and few marks run through a label. A
 * mark runs from its label's row down.
 */
export function labelled(marks: readonly { x: number; wide: number }[], width: number): Label[] {
  const labels = marks.map(({ x: wanted, wide }): Label => {
    const x = Math.min(width, Math.max(0, wanted));
    const from = x + wide <= width ? x : Math.max(0, x - wide);
    return { x, from, to: from + wide, row: -1 };
  });
  // Those that stand at the left of their marks come last, and from the right: each then makes room for the next.
  const left = ({ from, x }: Label): number => Number(from < x);
  const order = labels.toSorted((a, b) => left(a) - left(b) || (left(a) ? b.x - a.x : a.x - b.x));
  const placed: Label[] = [];
  for (const label of order) {
    const rows = [...placed.keys(), placed.length].filter((row) =>
      placed.every((other) => other.row !== row || other.from >= label.to || label.from >= other.to),
    );
    const runs = (mark: Label, through: Label): boolean => through.from < mark.x && mark.x < through.to;
    const clear = rows.find((row) =>
      placed.every(
        (other) => !(other.row < row ? runs(other, label) : other.row > row && runs(label, other)),
      ),
    );
    label.row = clear ?? rows[0]!;
    placed.push(label);
  }
  return labels;
}

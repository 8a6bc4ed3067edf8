import type { Calibrated, CalibratedValue, Ranked, Threshold } from "../core/contract";

export type Measure = "sqnr" | "amax" | "clipped";

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
  const winners = thresholds.filter(({ sqnr }) => sqnr === most);
  return new Set(winners.length < thresholds.length ? winners.map(({ calibrator }) => calibrator) : []);
}

export function readBy(values: readonly CalibratedValue[], nodes: readonly string[]): CalibratedValue[] {
  const selected = new Set(nodes);
  return values.filter(({ readers }) => readers.some((node) => selected.has(node)));
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
export function ranked(calibration: Calibrated): Ranked[] {
  if (calibration.ranking.length) return calibration.ranking;
  const unranked = {
    precision: "int8",
    score: null,
    delta: null,
    sqnr: null,
    samples: 0,
    source: "",
    note: "",
  } as const;
  return calibratorsOf(calibration).map((calibrator) => ({ ...unranked, calibrator }));
}

import { describe, expect, it } from "vitest";
import type { CalibratedValue, TensorStats, Threshold } from "../src/core/contract";
import { CalibratedBars, TensorView } from "../src/ui/histogram";
import { elements } from "./elements";

const tensor = (lower: number, upper: number, counts: number[]): TensorStats => ({
  name: "t",
  kind: "weight",
  origin: "measured",
  source: "",
  shape: "4",
  dtype: "fp32",
  count: 4,
  minimum: lower,
  maximum: upper,
  mean: 0,
  std: 1,
  zeros: 0.25,
  lower,
  upper,
  counts,
});
const drawn = (stats: TensorStats) => elements(TensorView({ tensor: stats }));
const paths = (stats: TensorStats) =>
  drawn(stats).flatMap(({ tag, props }) => (tag === "path" ? props.d : []));
const bars = (list: ReturnType<typeof elements>) =>
  list.filter(({ tag }) => tag === "rect").map(({ props }) => props);

describe("a histogram", () => {
  it("marks zero where it lies between the ends", () => {
    // 230 wide, from -1 to 3: a quarter of the way.
    expect(paths(tensor(-1, 3, [1, 1]))[1]).toMatch(/^M57\.5 /);
    expect(paths(tensor(0, 3, [1, 1]))).toHaveLength(1);
    expect(paths(tensor(-3, 0, [1, 1]))).toHaveLength(1);
  });

  it("draws bars by the root of their counts, side by side, on one floor", () => {
    const [low, none, high] = bars(drawn(tensor(0, 3, [4, 0, 16]))) as Record<string, number>[];
    expect([32, 0, 64]).toEqual([low!.height, none!.height, high!.height]);
    for (const bar of [low, none, high]) expect(bar!.y! + bar!.height!).toBe(66);
    expect(low!.x).toBe(0);
    expect(high!.x).toBeCloseTo((2 * 230) / 3);
  });

  it("adds up bins that are too narrow to be told apart, and loses none", () => {
    // 200 bins have 3 pixels each in 230 only by threes: 66 of three and one of two.
    const list = bars(drawn(tensor(0, 1, new Array(200).fill(1)))) as Record<string, number>[];
    expect(list).toHaveLength(67);
    expect(list.slice(0, 66).every(({ height }) => height === 64)).toBe(true);
    expect(list[66]!.height).toBeCloseTo(64 * Math.sqrt(2 / 3));
  });
});

describe("a calibrated histogram", () => {
  const threshold = (calibrator: string, amax: number, part: Partial<Threshold> = {}): Threshold => ({
    calibrator,
    amax,
    clipped: 0.5,
    sqnr: 20,
    chosen: "",
    why: "",
    doubt: "",
    ...part,
  });
  const value: CalibratedValue = {
    value: "v",
    node: "",
    readers: [],
    shape: "4",
    count: 4,
    zeros: 0,
    upper: 8,
    counts: [1, 1, 1, 1],
    thresholds: [threshold("max", 8), threshold("mse", 2), threshold("auto", 2, { chosen: "mse" })],
  } as unknown as CalibratedValue;
  const all = (chosen: string) => elements(CalibratedBars({ value, chosen }));

  it("is pale from where the chosen calibrator cuts", () => {
    const pale = (chosen: string) => bars(all(chosen)).map((bar) => bar.class === "rt-beyond");
    expect([false, true, true, true]).toEqual(pale("mse"));
    expect([false, true, true, true]).toEqual(pale("auto"));
    expect([false, false, false, false]).toEqual(pale("max"));
  });

  it("has a line for each method at its threshold, and that of the chosen one stands out", () => {
    const lines = all("auto").filter(({ tag, props }) => tag === "path" && props.class);
    expect([
      ["rt-chosen", 57.5],
      ["rt-cut", 229.5],
    ]).toEqual(lines.map(({ props }) => [props.class, Number.parseFloat(String(props.d).slice(1))]));
  });
});

import { describe, expect, it } from "vitest";
import type { Calibrated, CalibratedValue, Ranked, Threshold } from "../src/core/contract";
import { best, calibratorsOf, choiceOf, methodOf, ranked, readBy, shownOf } from "../src/panels/thresholds";

const threshold = (calibrator: string, sqnr: number | null): Threshold => ({
  calibrator,
  amax: 1,
  clipped: 0,
  sqnr,
  chosen: "",
  why: "",
  doubt: "",
});

function value(name: string, readers: string[], thresholds: Threshold[] = []): CalibratedValue {
  return {
    value: name,
    node: "",
    readers,
    shape: "1×8",
    count: 8,
    zeros: 0,
    origin: "measured",
    upper: 2,
    counts: [1, 1],
    thresholds,
  };
}

const calibration = (part: Partial<Calibrated>): Calibrated => ({
  samples: 512,
  wanted: 898,
  source: "digits",
  values: [],
  task: "Accuracy",
  unit: "%",
  ranking: [],
  measured: "",
  ...part,
});

describe("the rows of a selection", () => {
  const image = value("image", ["conv"]);
  const sum = value("sum", ["relu", "pool"]);
  const both = value("both", ["pool", "matmul"]);
  const values = [image, sum, both];

  it("are the values that one of the nodes reads", () => {
    // A node that reads two values has two scales; a node that reads none marks nothing.
    expect([sum, both]).toEqual(readBy(values, ["pool"]));
    expect([image, both]).toEqual(readBy(values, ["conv", "matmul"]));
    expect([]).toEqual(readBy(values, ["softmax"]));
    expect([]).toEqual(readBy(values, []));
  });

  it("keep the picked one in view until the selection moves to others", () => {
    // Picking "both" selects its readers, of which one also reads "sum": the histogram must stay that of "both".
    expect(both).toBe(shownOf(values, [sum, both], "both"));
    expect(image).toBe(shownOf(values, [image], "both"));
    expect(both).toBe(shownOf(values, [], "both"));
    expect(image).toBe(shownOf(values, [], "gone"));
    expect(undefined).toBe(shownOf([], [], ""));
  });
});

describe("what auto took", () => {
  const auto = {
    ...threshold("auto", 30),
    chosen: "percentile",
    why: "the smallest threshold that loses little",
  };
  const found = value("v", [], [auto, threshold("minmax", 20), threshold("percentile", 30)]);

  it("is one of the fixed methods", () => {
    // The histogram draws each threshold once: that of auto is the one that it took.
    expect("percentile").toBe(methodOf(found, "auto"));
    expect("minmax").toBe(methodOf(found, "minmax"));
    expect(auto).toBe(choiceOf(found));
  });

  it("is nothing for a tensor of zeros, nor where auto was not asked", () => {
    expect("auto").toBe(methodOf(value("v", [], [threshold("auto", null)]), "auto"));
    expect(undefined).toBe(choiceOf(value("v", [], [threshold("minmax", 20)])));
  });
});

describe("the best calibrator of a tensor", () => {
  it("is the one with the most signal to noise, or several that tie", () => {
    // Emphasis says "this one": two that are equally good are both it.
    const found = value("v", [], [threshold("minmax", 20), threshold("mse", 31), threshold("entropy2", 31)]);
    expect(new Set(["mse", "entropy2"])).toEqual(best(found));
  });

  it("is none where all are alike or a threshold leaves no noise", () => {
    // What is the same everywhere is no reason to choose, and a missing number cannot be beaten or beat.
    expect(new Set()).toEqual(best(value("v", [], [threshold("minmax", 20), threshold("mse", 20)])));
    expect(new Set()).toEqual(best(value("v", [], [threshold("minmax", null), threshold("mse", 20)])));
    expect(new Set()).toEqual(best(value("v", [])));
  });
});

describe("the ranking", () => {
  it("stands in the kernel's order", () => {
    // The kernel ranks by the task; sorting again here could put another one first.
    const rank = (calibrator: string, value: number): Ranked => ({
      calibrator,
      precision: "int8",
      score: {
        name: "Accuracy",
        value,
        unit: "%",
        samples: 100,
        source: "a CPU",
        higher: true,
        interval: null,
      },
      delta: null,
      sqnr: null,
      samples: 100,
      source: "a CPU",
      note: "",
    });
    const known = calibration({ ranking: [rank("mse", 90), rank("minmax", 95), rank("entropy2", 80)] });
    expect(["mse", "minmax", "entropy2"]).toEqual(ranked(known).map(({ calibrator }) => calibrator));
  });

  it("lists the calibrators without numbers before it was measured", () => {
    // One can choose a calibrator without trying all of them; what was not measured has no number.
    const both = [threshold("minmax", 1), threshold("mse", 2)];
    const known = calibration({ values: [value("a", [], both), value("b", [], [threshold("entropy", 1)])] });
    expect(["minmax", "mse", "entropy"]).toEqual(calibratorsOf(known));
    expect([
      ["minmax", null],
      ["mse", null],
      ["entropy", null],
    ]).toEqual(ranked(known).map(({ calibrator, score }) => [calibrator, score]));
  });
});

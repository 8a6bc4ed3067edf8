import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Calibrated, CalibratedValue, Ranked, Threshold } from "../src/core/contract";
import {
  best,
  calibratorsOf,
  choiceOf,
  labelled,
  methodOf,
  ranked,
  readBy,
  shownOf,
} from "../src/panels/thresholds";

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

describe("labels of marks", () => {
  // Doubles would be drawn by their bits, and nearly all lie next to zero.
  const mark = fc.record({ x: fc.integer({ min: -10, max: 400 }), wide: fc.integer({ min: 10, max: 110 }) });

  it("never cover each other or leave the histogram", () => {
    // Five thresholds are often close together: each must still be read.
    fc.assert(
      fc.property(fc.array(mark, { maxLength: 8 }), fc.integer({ min: 120, max: 380 }), (marks, width) => {
        const labels = labelled(marks, width);
        expect(marks.length).toBe(labels.length);
        labels.forEach((label, k) => {
          expect(label.from).toBeGreaterThanOrEqual(0);
          expect(label.to).toBeLessThanOrEqual(width);
          for (const other of labels.slice(0, k))
            expect(other.row !== label.row || other.from >= label.to || label.from >= other.to).toBe(true);
        });
      }),
      { seed: 1 },
    );
  });

  it("stand beside their marks, and in one row where there is room", () => {
    // A label far from its mark names another one.
    const far = labelled(
      [
        { x: 0, wide: 50 },
        { x: 100, wide: 50 },
        { x: 230, wide: 50 },
      ],
      230,
    );
    expect([0, 0, 0]).toEqual(far.map(({ row }) => row));
    for (const { x, from, to } of far) expect([from, to]).toContain(x);
  });

  it("leave the marks that run down beside them free where that can be", () => {
    // A line through a word makes both hard to read.
    const labels = labelled(
      [
        { x: 10, wide: 60 },
        { x: 30, wide: 60 },
        { x: 50, wide: 60 },
      ],
      300,
    );
    for (const label of labels)
      for (const other of labels)
        expect(other.row < label.row && label.from < other.x && other.x < label.to).toBe(false);
  });
});

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  columnUnit,
  difference,
  elapsed,
  ending,
  NONE,
  number,
  percent,
  printable,
  quantity,
  shorten,
  thousands,
  uncapitalised,
  withSpread,
} from "../src/core/format";

describe("numbers", () => {
  it("have three significant digits", () => {
    // More digits than a measurement supports are a false claim.
    const cases = {
      0.2136: "0.214",
      1.9234: "1.92",
      98.87: "98.9",
      1234.5: "1230",
      999.9: "1000",
      0.9999: "1.00",
    };
    for (const [value, text] of Object.entries(cases)) expect(text).toBe(number(Number(value)));
  });

  it("never differ from the value by more than half a unit of the third digit", () => {
    // Rounding must not change a ranking by more than what is shown.
    fc.assert(
      fc.property(fc.double({ min: 1e-12, max: 1e12, noNaN: true }), (value) => {
        const read = Number(number(value));
        expect(Math.abs(read - value) / value).toBeLessThanOrEqual(0.00501);
      }),
      { seed: 1 },
    );
  });

  it("show a dash where there is none, and a zero where it is zero", () => {
    // A missing time is not a time of zero.
    for (const none of [null, undefined, Number.NaN, Number.POSITIVE_INFINITY]) {
      expect(NONE).toBe(number(none));
      expect(NONE).toBe(quantity(none, "ms"));
      expect(NONE).toBe(difference(none, "%"));
    }
    expect("0").toBe(number(0));
    expect("0 ms").toBe(quantity(0, "ms"));
  });

  it("carry a true minus sign", () => {
    // A hyphen is too short to be seen before a digit.
    expect("−0.300").toBe(number(-0.3));
    expect("−0.3 pt").toBe(difference(-0.3, "%"));
    expect("+6.1 pt").toBe(difference(6.1, "%"));
    expect("±0.0 pt").toBe(difference(0, "%"));
  });

  it("move to the unit that reads best", () => {
    // 0.0019 ms is hard to compare with 1.9 µs.
    expect("1.90 µs").toBe(quantity(0.0019, "ms"));
    expect("43.6 µs").toBe(quantity(0.0436, "ms"));
    expect("1.92 s").toBe(quantity(1920, "ms"));
    expect("1.50 MiB").toBe(quantity(1.5 * 2 ** 20, "B"));
    expect("31.4 dB").toBe(quantity(31.42, "dB"));
    expect("14").toBe(quantity(14, ""));
  });

  it("tell shares in percent and counts in full", () => {
    // Three digits of a count of elements would be a false count; of a share they are enough.
    expect("0.0123 %").toBe(percent(0.0001234));
    expect("0 %").toBe(percent(0));
    expect("524\u2009288").toBe(thousands(524288));
  });

  it("share their unit with their spread", () => {
    // "0.01 ms ± 0.53 µs" makes the reader compute.
    expect("10.5 ± 0.53 µs").toBe(withSpread(0.0105, 0.00053, "ms"));
    expect("1.90 ± 0.1 µs").toBe(withSpread(0.0019, 0.0001, "ms"));
    expect("31.4 dB").toBe(withSpread(31.4, null, "dB"));
  });
});

describe("words", () => {
  it("are shortened with an ellipsis and never beyond the limit", () => {
    // Names of ten thousand characters exist.
    expect(40).toBe(shorten("x".repeat(10_000), 40).length);
    expect("short").toBe(shorten("short", 40));
  });

  it("lose their capital inside a sentence unless they are an abbreviation", () => {
    // "Highest Time" is a title; "lowest sQNR" is a mistake.
    expect("time").toBe(uncapitalised("Time"));
    expect("SQNR").toBe(uncapitalised("SQNR"));
  });

  it("tell elapsed time in seconds, then minutes", () => {
    // A clock of the kernel that is ahead must not show negative seconds.
    expect("3.1 s").toBe(elapsed(3.14));
    expect("2 min 5 s").toBe(elapsed(125.4));
    expect("0.0 s").toBe(elapsed(-1));
  });
});

describe("what vendors write", () => {
  it("is cut between joined names, so that those that stay are whole", () => {
    // "…ight + QuantizeLinear_7 + Conv_9" begins with a piece that names nothing.
    expect("… + QuantizeLinear_7 + Conv_9").toBe(ending("conv1.weight + QuantizeLinear_7 + Conv_9", 36));
    // Where little would be left, the name is cut wherever the limit is.
    expect("…ong_name_of_one_layer + Relu").toBe(ending("a_very_long_name_of_one_layer + Relu", 29));
    expect("Conv_9").toBe(ending("Conv_9", 36));
  });

  it("loses the control characters between its fields", () => {
    // TensorRT joins its metadata by U+001E, which browsers draw as a box.
    expect("[a] [b]").toBe(printable("[a]\u001e[b]"));
  });
});

describe("the unit of a column", () => {
  it("is that of its longest time", () => {
    expect(["µs", 1e-3]).toEqual(columnUnit([0.119, null, 0.0045]));
    expect(["ms", 1]).toEqual(columnUnit([0.119, 1.5]));
    expect(["s", 1000]).toEqual(columnUnit([1200]));
    expect(["µs", 1e-3]).toEqual(columnUnit([null]));
    expect(["µs", 1e-3]).toEqual(columnUnit([]));
  });
});

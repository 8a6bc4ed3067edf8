import { describe, expect, it } from "vitest";
import { fitting, fittingHeight, tooNarrow } from "../src/fitting";

describe("the texts of the status line", () => {
  const texts = [
    "compiled: TensorRT-RTX 1.7",
    "estimated: 532 µs; a layer is off by 1.19",
    "not timed: cancelled",
  ];

  it("stand in full where all have room", () => {
    expect(texts).toEqual(fitting(texts, 1000));
  });

  it("are told to their first semicolon where they have not", () => {
    expect([texts[0], "estimated: 532 µs", texts[2]]).toEqual(fitting(texts, 600));
  });
});

describe("a height that nobody chose", () => {
  it("is what a window has room for, within bounds", () => {
    // On a laptop of 720 lines the charts lay below the edge of the window.
    expect(590).toBe(fittingHeight(720));
    expect(760).toBe(fittingHeight(1000));
    expect(560).toBe(fittingHeight(400));
  });
});

describe("two panes", () => {
  it("stand above each other where that gives each of them room, and side by side in a low window", () => {
    // JupyterLab with its file browser: 1280 x 720, and a tall window of the same width.
    expect(false).toBe(tooNarrow(640, 265));
    expect(true).toBe(tooNarrow(640, 500));
    expect(false).toBe(tooNarrow(700, 500));
    expect(true).toBe(tooNarrow(400, 200));
  });
});

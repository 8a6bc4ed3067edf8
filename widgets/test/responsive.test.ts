import { describe, expect, it } from "vitest";
import { bottomHeight, heightThatFits, textsThatFit, tooNarrow } from "../src/ui/responsive";

describe("the texts of the status line", () => {
  const texts = [
    "compiled: TensorRT-RTX 1.7",
    "estimated: 532 µs; a layer is off by 1.19",
    "not timed: cancelled",
  ];

  it("stand in full where all have room", () => {
    expect(texts).toEqual(textsThatFit(texts, 1000));
  });

  it("are told to their first semicolon where they have not", () => {
    expect([texts[0], "estimated: 532 µs", texts[2]]).toEqual(textsThatFit(texts, 600));
  });

  it("are as many as can be read, one at least; the others are asked for", () => {
    // 26 letters of 6.9 and a space of 34 are 213.4, with the 17 of the second 364.7, and 70 lead to the rest.
    expect([texts[0], "estimated: 532 µs"]).toEqual(textsThatFit(texts, 440));
    expect([texts[0]]).toEqual(textsThatFit(texts, 430));
    expect([texts[0]]).toEqual(textsThatFit(texts, 100));
  });
});

describe("a height that nobody chose", () => {
  it("is what the notebook shows at once, less the edges of a cell", () => {
    // Measured: of 720 lines JupyterLab leaves a notebook 599, of 1000 it leaves 879, of 1440 it leaves 1319.
    expect([587, 867, 1307]).toEqual([
      heightThatFits(720, 599),
      heightThatFits(1000, 879),
      heightThatFits(1440, 1319),
    ]);
  });

  it("is what a window has room for where no notebook scrolls it", () => {
    expect(590).toBe(heightThatFits(720));
    expect(870).toBe(heightThatFits(1000));
  });

  it("is never so low that nothing can be read, and does not grow with a place that grows with it", () => {
    expect(520).toBe(heightThatFits(400, 279));
    // At 200 % zoom of a laptop's screen, or beside a side bar, one thing lies below the other.
    expect(860).toBe(heightThatFits(360, 239, 524));
    expect(1080).toBe(heightThatFits(360, 239, 270));
    expect(520).toBe(heightThatFits(360, 239, 700));
    expect(708).toBe(heightThatFits(720, 5000));
  });
});

describe("the part of the charts", () => {
  it("is the same in every tab, and what was dragged", () => {
    // By default 37 % of a low page, as much as a panel needs of a higher one, and 29.2 % from 900 on.
    expect([222, 282, 263, 292]).toEqual([600, 800, 900, 1000].map((tall) => bottomHeight(tall, undefined)));
    // 25 % once somebody dragged the line there.
    expect(150).toBe(bottomHeight(600, "25.00"));
  });

  it("is the usual one again once the line was put back", () => {
    expect(222).toBe(bottomHeight(600, ""));
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

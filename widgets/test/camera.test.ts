import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Camera } from "../src/graph/draw/camera";

const KEEP = { left: 20, top: 20, right: 20, bottom: 20 };
const GRAPH = { x: 0, y: 0, width: 300, height: 4000 };
const BOX = { x: 100, y: 3000, width: 100, height: 40 };

/** Frames that run when told, at the time told. */
let frames: FrameRequestCallback[] = [];
const frame = (at: number): void => {
  for (const step of frames.splice(0)) step(at);
};

beforeEach(() => {
  frames = [];
  vi.stubGlobal("matchMedia", () => ({ matches: false }));
  vi.stubGlobal("requestAnimationFrame", (step: FrameRequestCallback) => frames.push(step));
  vi.stubGlobal("cancelAnimationFrame", () => frames.splice(0));
  vi.spyOn(performance, "now").mockReturnValue(1000);
});
afterEach(() => {
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

function camera(): Camera {
  const made = new Camera(() => {});
  made.resize(400, 400);
  return made;
}

const visible = (shown: Camera): boolean => {
  const { y, height } = shown.toScreen(BOX);
  return y >= 0 && y + height <= 400;
};

describe("glide", () => {
  it("does not run backwards when its first frame is older than itself", () => {
    // A page that was busy hands out frames whose time has passed; the pane would show nothing.
    const shown = camera();
    shown.reveal(BOX, KEEP, true);
    frame(200);
    expect(0).toBe(shown.y);
    frame(2000);
    expect(visible(shown)).toBe(true);
  });

  it("arrives although the pane changes its size on the way", () => {
    // Charts appear while the selection comes into view; the glide must not end half-way.
    const shown = camera();
    shown.reveal(BOX, KEEP, true);
    frame(1050);
    shown.resize(440, 400);
    shown.shift(20, 0);
    shown.keep(GRAPH, 60);
    frame(2000);
    expect(visible(shown)).toBe(true);
    // Centred in the old width, and moved by half of what the pane gained.
    expect(50 + 20).toBe(shown.x);
  });
});

describe("what is brought into view", () => {
  const KEPT = { left: 10, top: 20, right: 30, bottom: 40 };
  // 400 by 400 with those edges free: what is seen in part moves to the nearest of them, and no further.
  it.each([
    ["left", { x: -50, y: 100 }, { x: 10, y: 100 }],
    ["right", { x: 350, y: 100 }, { x: 400 - 30 - 100, y: 100 }],
    ["top", { x: 100, y: -50 }, { x: 100, y: 20 }],
    ["bottom", { x: 100, y: 350 }, { x: 100, y: 400 - 40 - 100 }],
    ["no side", { x: 100, y: 100 }, { x: 100, y: 100 }],
    ["every side", { x: 900, y: 100 }, { x: 140, y: 140 }],
  ])("at the %s", (_, at, shown) => {
    const pane = camera();
    pane.reveal({ ...at, width: 100, height: 100 }, KEPT, false);
    expect(pane.toScreen({ ...at, width: 100, height: 100 })).toMatchObject(shown);
  });

  it("is made smaller only where it would not fit", () => {
    const pane = camera();
    pane.reveal({ x: 0, y: 0, width: 720, height: 100 }, KEPT, false);
    expect(0.5).toBe(pane.scale);
    expect(10).toBe(pane.toScreen({ x: 0, y: 0, width: 720, height: 100 }).x);
  });

  it("stays under the pointer while the scale changes, within what both ends allow", () => {
    const pane = camera();
    pane.pan(30, 50);
    const under = pane.toWorld(100, 200);
    pane.zoomAt(100, 200, 2);
    expect([under, 2]).toEqual([pane.toWorld(100, 200), pane.scale]);
    pane.zoomAt(0, 0, 1e6);
    expect(4).toBe(pane.scale);
    pane.zoomAt(0, 0, 1e-9);
    expect(pane.least).toBe(pane.scale);
    pane.centreOn(7, 9);
    [200, 200].forEach((middle, axis) => {
      expect(pane.toWorld(200, 200)[axis]).toBeCloseTo([7, 9][axis]!);
      expect(middle).toBe([pane.width, pane.height][axis]! / 2);
    });
  });
});

describe("camera", () => {
  it("brings a graph back that lies outside the pane", () => {
    // An empty pane does not tell which way the graph is.
    const shown = camera();
    shown.pan(0, -9000);
    shown.keep(GRAPH, 60);
    const { y, height } = shown.toScreen(GRAPH);
    expect(60).toBe(y + height);
  });

  it("never goes to a place that is no number", () => {
    // From there no pan or zoom leads back.
    const shown = camera();
    shown.pan(Number.NaN, 0);
    shown.reveal({ ...BOX, y: Number.NaN }, KEEP, true);
    expect([1, 0, 0]).toEqual([shown.scale, shown.x, shown.y]);
  });

  it("fits a graph above what covers the bottom", () => {
    // The legend stands there.
    const shown = camera();
    shown.fit({ x: 0, y: 0, width: 300, height: 800 }, { ...KEEP, bottom: 80 });
    const { y, height } = shown.toScreen({ x: 0, y: 0, width: 300, height: 800 });
    expect([20, 320]).toEqual([Math.round(y), Math.round(y + height)]);
  });
});

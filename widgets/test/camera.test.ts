import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Camera } from "../src/draw/camera";

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

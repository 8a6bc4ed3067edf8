import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Camera } from "../src/graph/draw/camera";
import { freeCorner, Minimap } from "../src/graph/draw/minimap";
import { lookFor, Recorder, sceneOf, stubCanvas, theme } from "./canvas";
import { box } from "./payloads";

describe("the corner of the map", () => {
  const pane = { width: 400, height: 300 };
  const map = { width: 70, height: 90 };

  it("is the one at the lower right where nothing is drawn there", () => {
    // It takes 320..390 across and 200..290 down: a box that ends at 319 is beside it.
    expect([1, 1]).toEqual(freeCorner(pane, map, [{ x: 200, y: 200, width: 119, height: 50 }]));
  });

  it("is another where a box would be covered", () => {
    const box = { x: 250, y: 250, width: 100, height: 20 };
    expect([0, 1]).toEqual(freeCorner(pane, map, [box]));
    // Both lower corners are taken, by one pixel each.
    expect([1, 0]).toEqual(freeCorner(pane, map, [box, { x: 0, y: 280, width: 11, height: 20 }]));
  });

  it("is none where boxes are everywhere", () => {
    expect(null).toBe(freeCorner(pane, map, [{ x: 0, y: 0, width: 400, height: 300 }]));
  });
});

describe("the map of a graph that is wider than high", () => {
  beforeEach(stubCanvas);
  afterEach(() => void vi.unstubAllGlobals());

  it("leads from its corners to those of the graph, each axis by its own scale", () => {
    const { scene } = sceneOf(
      { boxes: ["a", "b", "c", "d"].map((id) => box({ id })), edges: [0, 1, 2].map((v) => [v, v + 1]) },
      true,
    );
    const pen = new Recorder();
    const style: Record<string, string> = {};
    vi.stubGlobal("devicePixelRatio", 1);
    const map = new Minimap({ style, getContext: () => pen } as unknown as HTMLCanvasElement);
    const camera = new Camera(() => {});
    camera.resize(400, 300);
    map.redraw(scene, camera, theme, lookFor(scene), new Set([1]));
    const [width, height] = [map.widthIn(camera), map.heightIn(camera)];
    const { bounds } = scene;
    expect(bounds.width).toBeGreaterThan(2 * bounds.height);
    expect([0, 0]).toEqual(map.toWorld(4, 4));
    const [x, y] = map.toWorld(width - 4, height - 4);
    expect(bounds.width).toBeCloseTo(x);
    expect(bounds.height).toBeCloseTo(y);
    // All is in view from afar, and a part from near by.
    camera.zoomAt(0, 0, 0.1);
    expect(map.frame(camera, scene, theme)).toBe(false);
    camera.zoomAt(0, 0, 20);
    expect(map.frame(camera, scene, theme)).toBe(true);
    camera.resize(299, 300);
    expect([false, 0, 0]).toEqual([
      map.frame(camera, scene, theme),
      map.widthIn(camera),
      map.heightIn(camera),
    ]);
  });
});

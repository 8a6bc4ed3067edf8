import { describe, expect, it } from "vitest";
import { freeCorner } from "../src/draw/minimap";

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

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { LinkedPan } from "../src/graph/draw/linked_pan";
import type { Scene } from "../src/graph/draw/scene";

const sceneAt = (points: [number, number][], across = false): Scene =>
  ({ x: Float32Array.from(points, ([x]) => x), y: Float32Array.from(points, ([, y]) => y), across }) as Scene;

const point = fc.tuple(fc.integer({ min: 0, max: 900 }), fc.integer({ min: 0, max: 9000 }));
const pairing = fc.array(fc.tuple(point, point), { maxLength: 30 });
const followOf = (pairs: [[number, number], [number, number]][], across = false): LinkedPan =>
  new LinkedPan(
    sceneAt(
      pairs.map(([a]) => a),
      across,
    ),
    sceneAt(
      pairs.map(([, b]) => b),
      across,
    ),
    pairs.map((_, i) => [i, i] as const),
  );

describe("a following pane", () => {
  it("never runs backwards", () => {
    // Panning down must not scroll the other pane up, in whatever order the compiler runs its layers.
    fc.assert(
      fc.property(
        pairing,
        fc.array(fc.integer({ min: -500, max: 9500 }), { minLength: 2 }),
        (pairs, places) => {
          const follow = followOf(pairs);
          const ys = places.sort((a, b) => a - b).map((y) => follow.at(0, y)[1]);
          for (let k = 1; k < ys.length; k++) expect(ys[k]! + 1e-6).toBeGreaterThanOrEqual(ys[k - 1]!);
        },
      ),
    );
  });

  it("moves smoothly: a small step never makes it jump", () => {
    // A jump loses the place that a person looks at.
    fc.assert(
      fc.property(pairing, fc.integer({ min: 0, max: 9000 }), (pairs, y) => {
        const follow = followOf(pairs);
        const [x0, y0] = follow.at(100, y);
        const [x1, y1] = follow.at(100, y + 1e-7);
        expect(Math.abs(y1 - y0) + Math.abs(x1 - x0)).toBeLessThan(0.1);
      }),
    );
  });

  it.each([false, true])("shows the counterpart where order is kept, across: %s", (across) => {
    // What stands in the middle of one pane stands in the middle of the other.
    const pairs = [0, 1, 2, 3].map((k): [[number, number], [number, number]] => {
      const [a, b] = [100 * k, 37 * k * k];
      return across
        ? [
            [a, 10],
            [b, 60],
          ]
        : [
            [10, a],
            [60, b],
          ];
    });
    const follow = followOf(pairs, across);
    for (const [from, to] of pairs) expect(to).toEqual(follow.at(...from));
  });

  it("moves alike where nothing is known", () => {
    // Two panes without a common box still pan together.
    expect([12, 34]).toEqual(followOf([]).at(12, 34));
  });
});

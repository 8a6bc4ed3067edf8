import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { layered } from "../src/layout/layered";
import { layout } from "../src/layout/layout";
import type { LayoutInput, LayoutOutput, Piece } from "../src/layout/types";
import { acyclic, any, inception, inputOf } from "./graphs";

interface Corners {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

const corners = (input: LayoutInput, output: LayoutOutput, v: number): Corners => ({
  left: output.x[v]! - input.width[v]! / 2,
  top: output.y[v]! - input.height[v]! / 2,
  right: output.x[v]! + input.width[v]! / 2,
  bottom: output.y[v]! + input.height[v]! / 2,
});

/** Pairs of boxes that share more than a hair's breadth. */
function overlaps(input: LayoutInput, output: LayoutOutput): [number, number][] {
  const boxes = Array.from(input.width, (_, v) => corners(input, output, v));
  const found: [number, number][] = [];
  const HAIR = 0.01;
  boxes.forEach((a, i) => {
    boxes.slice(i + 1).forEach((b, k) => {
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > HAIR && down > HAIR) found.push([i, i + 1 + k]);
    });
  });
  return found;
}

function route(output: LayoutOutput, e: number): [number, number][] {
  const points: [number, number][] = [];
  for (let k = output.offsets[e]!; k < output.offsets[e + 1]!; k++) {
    points.push([output.points[2 * k]!, output.points[2 * k + 1]!]);
  }
  return points;
}

/** Boxes that a wire's curve runs through, other than those it joins. */
function pierced(input: LayoutInput, output: LayoutOutput, e: number): number[] {
  const points = route(output, e);
  const found = new Set<number>();
  const STEPS = 24;
  for (let k = 1; k < points.length; k++) {
    const [x0, y0] = points[k - 1]!;
    const [x1, y1] = points[k]!;
    for (let s = 0; s <= STEPS; s++) {
      const t = s / STEPS;
      const start = (1 - t) ** 3 + 3 * (1 - t) ** 2 * t;
      const x = start * x0 + (1 - start) * x1;
      const y = (1 - t) ** 3 * y0 + 3 * (1 - t) * t * ((y0 + y1) / 2) + t ** 3 * y1;
      input.width.forEach((_, v) => {
        if (v === input.source[e] || v === input.target[e]) return;
        const box = corners(input, output, v);
        const HAIR = 0.5;
        const inside =
          x > box.left + HAIR && x < box.right - HAIR && y > box.top + HAIR && y < box.bottom - HAIR;
        if (inside) found.add(v);
      });
    }
  }
  return [...found];
}

describe("layout", () => {
  it("keeps all boxes apart", () => {
    // A hidden box is a node that the user believes the compiler removed.
    fc.assert(
      fc.property(acyclic, (graph) => {
        const input = inputOf(graph);
        expect([]).toEqual(overlaps(input, layout(input)));
      }),
      { numRuns: 150, seed: 1 },
    );
  });

  it("joins every wire to the bottom of its source and the top of its target", () => {
    // A wire that ends in the air tells a wrong story of who reads a tensor.
    fc.assert(
      fc.property(acyclic, (graph) => {
        const input = inputOf(graph);
        const output = layout(input);
        graph.edges.forEach(([s, t], e) => {
          const points = route(output, e);
          const from = corners(input, output, s);
          const to = corners(input, output, t);
          expect(points.length).toBeGreaterThan(1);
          expect(points[0]![0]).toBeCloseTo(output.x[s]!, 2);
          expect(points[0]![1]).toBeCloseTo(from.bottom, 2);
          expect(points.at(-1)![0]).toBeCloseTo(output.x[t]!, 2);
          expect(points.at(-1)![1]).toBeCloseTo(to.top, 2);
        });
      }),
      { numRuns: 100, seed: 2 },
    );
  });

  it("runs no wire through a box that it does not join", () => {
    // A wire behind a box looks as if that box read the tensor.
    fc.assert(
      fc.property(acyclic, (graph) => {
        const input = inputOf(graph);
        const output = layout(input);
        graph.edges.forEach((_, e) => {
          expect([]).toEqual(pierced(input, output, e));
        });
      }),
      { numRuns: 100, seed: 3 },
    );
  });

  it("stands every reader below what it reads", () => {
    // Reading order is execution order.
    fc.assert(
      fc.property(acyclic, (graph) => {
        const output = layout(inputOf(graph));
        for (const [s, t] of graph.edges) expect(output.y[t]!).toBeGreaterThan(output.y[s]!);
      }),
      { numRuns: 100, seed: 4 },
    );
  });

  it("ends for graphs with cycles and loops, with all boxes apart", () => {
    // A damaged or recurrent model must not hang the notebook.
    fc.assert(
      fc.property(any, (graph) => {
        const input = inputOf(graph);
        const output = layout(input);
        expect([]).toEqual(overlaps(input, output));
        expect(true).toBe(output.points.every(Number.isFinite));
      }),
      { numRuns: 150, seed: 5 },
    );
  });

  it("draws the same graph the same way twice", () => {
    // Screenshots are compared, and a picture that jumps on every build is tiring.
    fc.assert(
      fc.property(any, (graph) => {
        expect(layout(inputOf(graph))).toEqual(layout(inputOf(graph)));
      }),
      { numRuns: 40, seed: 6 },
    );
  });

  it("keeps everything inside the size that it tells", () => {
    // Fit and minimap rely on it.
    fc.assert(
      fc.property(any, (graph) => {
        const input = inputOf(graph);
        const output = layout(input);
        input.width.forEach((_, v) => {
          const box = corners(input, output, v);
          expect(Math.min(box.left, box.top)).toBeGreaterThan(-0.01);
          expect(box.right).toBeLessThan(output.width + 0.01);
          expect(box.bottom).toBeLessThan(output.height + 0.01);
        });
      }),
      { numRuns: 60, seed: 7 },
    );
  });

  it("draws repeated blocks alike, and their main line straight", () => {
    // Networks repeat themselves; equal parts that look equal are what makes a large graph readable.
    const input = inputOf({ ...inception(12), sizes: [[110, 30]] });
    const output = layout(input);
    const joints = Array.from({ length: 13 }, (_, b) => 17 * b);
    for (const v of joints) expect(output.x[v]!).toBeCloseTo(output.x[0]!, 2);
    const steps = new Set(joints.slice(1).map((v, b) => Math.round(output.y[v]! - output.y[joints[b]!]!)));
    expect(1).toBe(steps.size);
  });

  it("draws a mask that every block reads as stubs, not as wires down the page", () => {
    // One mask tensor that feeds all blocks of a transformer ruins a layered layout.
    const graph = inception(30);
    const mask = graph.size;
    const readers = Array.from({ length: 29 }, (_, b): [number, number] => [mask, 17 * (b + 1)]);
    const input = inputOf({ ...graph, size: mask + 1, edges: [...graph.edges, ...readers] });
    const output = layout(input);
    const first = graph.edges.length;
    const far = readers.filter((_, k) => output.offsets[first + k] === output.offsets[first + k + 1]);
    expect(far.length).toBeGreaterThan(25);
    expect([]).toEqual(overlaps(input, output));
  });

  it("lays out nothing as nothing", () => {
    const output = layout(inputOf({ size: 0, edges: [], sizes: [[1, 1]] }));
    expect([0, 0]).toEqual([output.width, output.height]);
  });
});

describe("the layered engine for large pieces", () => {
  it("keeps boxes of one rank apart and in the order of its ranks", () => {
    // It takes over where dagre would be too slow, and must not be worse than slow.
    fc.assert(
      fc.property(acyclic, ({ size, edges, sizes }) => {
        const width = Array.from({ length: size }, (_, v) => sizes[v % sizes.length]![0]);
        const piece: Piece = {
          width,
          height: width.map(() => 20),
          source: edges.map(([s]) => s),
          target: edges.map(([, t]) => t),
          tensor: edges.map(([s]) => s),
          guards: [],
        };
        const { rank, x, lanes } = layered(piece);
        edges.forEach(([s, t], e) => {
          expect(rank[t]!).toBeGreaterThan(rank[s]!);
          expect(rank[t]! - rank[s]! - 1).toBe(lanes[e]!.length);
        });
        for (let a = 0; a < size; a++) {
          for (let b = a + 1; b < size; b++) {
            if (rank[a] !== rank[b]) continue;
            expect(Math.abs(x[a]! - x[b]!)).toBeGreaterThanOrEqual((width[a]! + width[b]!) / 2);
          }
        }
      }),
      { numRuns: 100, seed: 8 },
    );
  });

  it("takes a tangle of 600 boxes without overlap", () => {
    // Nothing repeats and nothing can be cut: the hardest case for the block division.
    const size = 600;
    let state = 7;
    const random = (below: number): number => {
      state = (state * 1103515245 + 12345) % 2 ** 31;
      return state % below;
    };
    const edges = Array.from({ length: size - 1 }, (_, k): [number, number] => [random(k + 1), k + 1]);
    for (let k = 0; k < 300; k++) {
      const a = random(size);
      const b = random(size);
      if (a !== b) edges.push([Math.min(a, b), Math.max(a, b)]);
    }
    const input = inputOf({
      size,
      edges,
      sizes: [
        [90, 22],
        [120, 40],
      ],
    });
    expect([]).toEqual(overlaps(input, layout(input)));
  });
});

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { compact, layered } from "../src/graph/layout/layered";
import { layout } from "../src/graph/layout/layout";
import { Memo } from "../src/graph/layout/memo";
import { FRAME, type LayoutInput, type LayoutOutput, type Piece } from "../src/graph/layout/types";
import { compared } from "./crossings";
import {
  acyclic,
  any,
  densenet,
  framedBy,
  inception,
  inceptionChain,
  inputOf,
  nested,
  randomDag,
  resnet,
  transformerStack,
  unet,
  within,
} from "./graphs";

interface Corners {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

const corners = (output: LayoutOutput, v: number): Corners => ({
  left: output.x[v]! - output.boxWidth[v]! / 2,
  top: output.y[v]! - output.boxHeight[v]! / 2,
  right: output.x[v]! + output.boxWidth[v]! / 2,
  bottom: output.y[v]! + output.boxHeight[v]! / 2,
});

/** Pairs of boxes that share more than a hair's breadth, other than a frame and what stands in it. */
function overlaps({ parent }: LayoutInput, output: LayoutOutput): [number, number][] {
  const boxes = Array.from(parent, (_, v) => corners(output, v));
  const byTop = boxes.map((_, v) => v).sort((a, b) => boxes[a]!.top - boxes[b]!.top);
  const found: [number, number][] = [];
  const HAIR = 0.01;
  byTop.forEach((i, at) => {
    const a = boxes[i]!;
    for (let k = at + 1; k < byTop.length && boxes[byTop[k]!]!.top < a.bottom - HAIR; k++) {
      const j = byTop[k]!;
      const b = boxes[j]!;
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - b.top;
      if (across > HAIR && down > HAIR && !within(parent, i, j) && !within(parent, j, i)) found.push([i, j]);
    }
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

/** Points on a wire's curve, which leaves and enters every point along the direction of the drawing. */
function sampled(input: LayoutInput, output: LayoutOutput, e: number): [number, number][] {
  const points = route(output, e);
  const [along, aside] = input.across ? [0, 1] : [1, 0];
  const STEPS = 24;
  const found: [number, number][] = [];
  for (let k = 1; k < points.length; k++) {
    const a = points[k - 1]!;
    const b = points[k]!;
    for (let s = 0; s <= STEPS; s++) {
      const t = s / STEPS;
      const start = (1 - t) ** 3 + 3 * (1 - t) ** 2 * t;
      const bend = 3 * (1 - t) * t * ((a[along]! + b[along]!) / 2);
      const point: [number, number] = [0, 0];
      point[aside] = start * a[aside]! + (1 - start) * b[aside]!;
      point[along] = (1 - t) ** 3 * a[along]! + bend + t ** 3 * b[along]!;
      found.push(point);
    }
  }
  return found;
}

/** Boxes that a wire's curve runs through, other than those it joins and the frames around these. */
function pierced(input: LayoutInput, output: LayoutOutput, e: number): number[] {
  const found = new Set<number>();
  const HAIR = 0.5;
  const foreign = Array.from(input.width, (_, v) => v).filter(
    (v) => !within(input.parent, input.source[e]!, v) && !within(input.parent, input.target[e]!, v),
  );
  const boxes = foreign.map((v) => corners(output, v));
  for (const [x, y] of sampled(input, output, e)) {
    boxes.forEach((box, i) => {
      const inside =
        x > box.left + HAIR && x < box.right - HAIR && y > box.top + HAIR && y < box.bottom - HAIR;
      if (inside) found.add(foreign[i]!);
    });
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
          const from = corners(output, s);
          const to = corners(output, t);
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
          const box = corners(output, v);
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

  it("stands the outputs of a graph that read the same box side by side", () => {
    // One below the other they look like steps of a sequence.
    const output = layout(
      inputOf({
        size: 3,
        edges: [
          [0, 1],
          [0, 2],
        ],
        sizes: [[100, 22]],
      }),
    );
    expect(output.y[1]!).toBeCloseTo(output.y[2]!, 2);
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

describe("frames", () => {
  it("keeps boxes apart that do not stand in each other, in any depth", () => {
    // A box under the frame of others seems to belong to it.
    fc.assert(
      fc.property(nested, (graph) => {
        const input = inputOf(graph);
        expect([]).toEqual(overlaps(input, layout(input)));
      }),
      { numRuns: 400, seed: 11 },
    );
  });

  it("grows around its members, with room for its title above them", () => {
    // A member that reaches over the border or under the title is not seen as a member.
    fc.assert(
      fc.property(nested, (graph) => {
        const input = inputOf(graph);
        const output = layout(input);
        input.parent.forEach((frame, v) => {
          expect(output.boxWidth[v]!).toBeGreaterThanOrEqual(input.width[v]!);
          expect(output.boxHeight[v]!).toBeGreaterThanOrEqual(input.height[v]!);
          if (frame < 0) return;
          const inner = corners(output, v);
          const outer = corners(output, frame);
          const HAIR = 0.01;
          expect(inner.left - outer.left).toBeGreaterThan(FRAME.pad - HAIR);
          expect(outer.right - inner.right).toBeGreaterThan(FRAME.pad - HAIR);
          expect(inner.top - outer.top).toBeGreaterThan(FRAME.head + FRAME.gap - HAIR);
          expect(outer.bottom - inner.bottom).toBeGreaterThan(FRAME.pad - HAIR);
        });
        const whole = input.width.every(
          (_, v) => within(input.parent, v, v) && corners(output, v).left > -0.01,
        );
        expect(true).toBe(whole);
      }),
      { numRuns: 300, seed: 12 },
    );
  });

  it("are crossed by wires in one stroke from box to box", () => {
    // A wire that breaks off at a frame's border leaves open which member reads the tensor.
    fc.assert(
      fc.property(nested, (graph) => {
        const input = inputOf(graph);
        const output = layout(input);
        graph.edges.forEach(([s, t], e) => {
          const points = route(output, e);
          if (s === t) {
            expect(0).toBe(points.length);
            return;
          }
          expect(points.length).toBeGreaterThan(1);
          const [from, to] = [corners(output, s), corners(output, t)];
          const [first, last] = [points[0]!, points.at(-1)!];
          const along = input.across ? 0 : 1;
          const [start, end] = input.across ? (["left", "right"] as const) : (["top", "bottom"] as const);
          // A wire that closes a cycle runs against the direction of the others.
          const up = last[along] < first[along];
          expect(first[along]).toBeCloseTo(up ? from[start] : from[end], 1);
          expect(last[along]).toBeCloseTo(up ? to[end] : to[start], 1);
          const [near, far] = input.across ? (["top", "bottom"] as const) : (["left", "right"] as const);
          for (const [point, box] of [
            [first, from],
            [last, to],
          ] as const) {
            expect(point[1 - along]!).toBeGreaterThan(box[near] - 0.01);
            expect(point[1 - along]!).toBeLessThan(box[far] + 0.01);
          }
          // No jump sideways, at a border least of all: every step goes on in the direction of the wire.
          const steps = points.slice(1).map((point, k) => (point[along] - points[k]![along]) * (up ? -1 : 1));
          expect(Math.min(...steps)).toBeGreaterThan(0);
        });
      }),
      { numRuns: 300, seed: 13 },
    );
  });

  it("are passed by wires that do not end in them, and boxes too", () => {
    // A wire through a frame looks as if a member read the tensor.
    fc.assert(
      fc.property(nested, (graph) => {
        const input = inputOf(graph);
        const output = layout(input);
        graph.edges.forEach((_, e) => {
          expect([]).toEqual(pierced(input, output, e));
        });
      }),
      { numRuns: 300, seed: 14 },
    );
  });
});

describe("the border of a frame", () => {
  it("is crossed straight below and above the boxes that wires join", () => {
    // Two chains side by side through two frames should look like two chains.
    const input = inputOf({
      size: 6,
      edges: [
        [2, 4],
        [3, 5],
      ],
      sizes: [[100, 22]],
      parent: [-1, -1, 0, 0, 1, 1],
    });
    const output = layout(input);
    for (const [e, [s, t]] of [[2, 4] as const, [3, 5] as const].entries()) {
      const points = route(output, e);
      expect(points[1]![0]).toBeCloseTo(output.x[s]!, 2);
      expect(points[1]![1]).toBeGreaterThanOrEqual(corners(output, 0).bottom);
      expect(points.at(-2)![0]).toBeCloseTo(output.x[t]!, 2);
      expect(points.at(-2)![1]).toBeLessThanOrEqual(corners(output, 1).top);
    }
  });
});

describe("the drawing from left to right", () => {
  it("keeps boxes apart and lets wires leave at the right and enter at the left", () => {
    // Long chains fit a wide screen only in this direction.
    fc.assert(
      fc.property(acyclic, (graph) => {
        const input = inputOf({ ...graph, across: true });
        const output = layout(input);
        expect([]).toEqual(overlaps(input, output));
        graph.edges.forEach(([s, t], e) => {
          const points = route(output, e);
          expect(points[0]![0]).toBeCloseTo(corners(output, s).right, 2);
          expect(points.at(-1)![0]).toBeCloseTo(corners(output, t).left, 2);
          expect([]).toEqual(pierced(input, output, e));
        });
      }),
      { numRuns: 100, seed: 21 },
    );
  });
});

describe("hard graphs", () => {
  it("draws five thousand tensors between two boxes as a bounded fan", () => {
    // Damaged models and unrolled loops have such edges; a lane for each would be a page of lines.
    const edges = Array.from({ length: 5000 }, (): [number, number] => [0, 3]);
    const graph = {
      size: 4,
      edges: [...edges, [0, 1], [1, 2], [2, 3]] as [number, number][],
      sizes: [[100, 22]] as [number, number][],
    };
    const input = inputOf({ ...graph, tensor: graph.edges.map((_, e) => e) });
    const output = layout(input);
    const routes = new Set(edges.map((_, e) => String(route(output, e))));
    expect(8).toBe(routes.size);
    expect(output.width).toBeLessThan(1000);
    const one = layout(inputOf({ ...graph, tensor: graph.edges.map(() => 0) }));
    expect(1).toBe(new Set(edges.map((_, e) => String(route(one, e)))).size);
  });

  it("draws a node with two thousand inputs on a page that fits a screen", () => {
    // In one row the inputs would be two hundred thousand pixels wide, and nothing could be read.
    const size = 2001;
    const edges = Array.from({ length: size - 1 }, (_, v): [number, number] => [v, size - 1]);
    for (const framed of [false, true]) {
      const flat = { size, edges, sizes: [[100, 22]] as [number, number][] };
      const input = inputOf(framed ? framedBy(flat, size) : flat);
      const output = layout(input);
      expect([]).toEqual(overlaps(input, output));
      expect(Math.max(output.width, output.height)).toBeLessThan(12_000);
    }
  });

  it("lays out one box, boxes without edges, and frames in frames in frames", () => {
    // The smallest and the deepest graphs are where code that assumes neighbours fails.
    const one = layout(inputOf({ size: 1, edges: [], sizes: [[100, 22]] }));
    expect([50, 11, 100, 22]).toEqual([one.x[0], one.y[0], one.width, one.height]);
    const deep = 200;
    const tower = inputOf({
      size: deep + 2,
      edges: [[deep + 1, deep]],
      sizes: [[100, 22]],
      parent: Array.from({ length: deep + 2 }, (_, v) => (v > deep ? -1 : v - 1)),
    });
    const output = layout(tower);
    expect([]).toEqual(overlaps(tower, output));
    expect(output.boxHeight[0]!).toBeCloseTo(22 + deep * (FRAME.head + FRAME.gap + FRAME.pad), 2);
    expect(route(output, 0).at(-1)![1]).toBeCloseTo(corners(output, deep).top, 2);
  });

  it("keeps boxes apart where constants hang loose beside the main line", () => {
    // Constants stand beside their first reader, which may be a node that the graph is cut at.
    const loose = fc.integer({ min: 2, max: 30 }).chain((length) =>
      fc.record({
        length: fc.constant(length),
        hangs: fc.array(fc.tuple(fc.nat(length - 1), fc.nat(length - 1)), { maxLength: 40 }),
        skips: fc.array(fc.tuple(fc.nat(length - 1), fc.nat(length - 1)), { maxLength: 6 }),
      }),
    );
    fc.assert(
      fc.property(loose, ({ length, hangs, skips }) => {
        const edges = Array.from({ length: length - 1 }, (_, v): [number, number] => [v, v + 1]);
        for (const [a, b] of skips) if (a !== b) edges.push([Math.min(a, b), Math.max(a, b)]);
        hangs.forEach(([a, b], k) => {
          edges.push([length + k, a]);
          if (a !== b) edges.push([length + k, b]);
        });
        const input = inputOf({
          size: length + hangs.length,
          edges,
          sizes: [
            [160, 22],
            [60, 60],
            [110, 41],
          ],
        });
        const output = layout(input);
        expect([]).toEqual(overlaps(input, output));
        edges.forEach((_, e) => {
          expect([]).toEqual(pierced(input, output, e));
        });
      }),
      { numRuns: 200, seed: 31 },
    );
  });

  it("keeps all boxes of large networks apart, in frames too", () => {
    // Blocks that are stacked by the thousand must still not touch.
    const networks = [
      inceptionChain(3000),
      inceptionChain(3000, true),
      transformerStack(3000, { mask: true }),
      transformerStack(3000, { mask: true, framed: true }),
      randomDag(3000, 40, 1),
      framedBy(randomDag(3000, 40, 2), 3),
      densenet(60),
      resnet(),
      unet(6),
    ];
    for (const network of networks) {
      const input = inputOf(network);
      expect([]).toEqual(overlaps(input, layout(input)));
    }
  });
});

describe("crossings", () => {
  it("are none in networks that can be drawn without", () => {
    // Every crossing in the picture of a plain network is the fault of the layout.
    for (const network of [
      inceptionChain(200),
      transformerStack(200),
      transformerStack(200, { mask: true }),
      resnet(),
      unet(4),
      unet(8),
    ]) {
      expect(0).toBe(compared(network).ours);
    }
  });

  it("are at most a tenth more than in dagre's picture", () => {
    // dagre is what viewers use; a faster layout with a worse picture would be no gain.
    const graphs = [densenet(12), densenet(20)];
    const random = [
      [50, 10],
      [100, 60],
      [200, 20],
      [200, 1e9],
      [300, 20],
    ] as const;
    for (const [size, window] of random) graphs.push(randomDag(size, window, size));
    const all = graphs.map(compared);
    for (const { ours, theirs } of all) expect(ours).toBeLessThanOrEqual(1.1 * theirs + 2);
    const sum = (of: "ours" | "theirs"): number => all.reduce((total, one) => total + one[of], 0);
    expect(sum("ours")).toBeLessThanOrEqual(sum("theirs"));
  }, 60_000);
});

describe("the memory of what is laid out", () => {
  it("tells keys apart that have the same hash", () => {
    // Taken for each other, one block would be drawn with the wires of another.
    const memo = new Memo<string>();
    const keep = (key: number[], value: string): string => {
      memo.start(...key);
      return memo.get(() => value);
    };
    expect("a").toBe(keep([1, 0], "a"));
    expect("b").toBe(keep([0, 31], "b"));
    expect("a").toBe(keep([1, 0], "c"));
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
          leaves: edges.map(() => 0),
          enters: edges.map(() => 0),
          guards: [],
          top: -1,
          bottom: -1,
        };
        const { rank, x, lanes } = layered(piece, compact(piece));
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

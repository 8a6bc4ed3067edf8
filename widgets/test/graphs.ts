import fc from "fast-check";
import type { LayoutInput } from "../src/layout/types";

export interface Drawn {
  size: number;
  edges: [number, number][];
  sizes: [number, number][];
}

/** Inputs for the layout: the first box is the graph's input. */
export function inputOf({ size, edges, sizes }: Drawn): LayoutInput {
  return {
    width: Float32Array.from({ length: size }, (_, v) => sizes[v % sizes.length]![0]),
    height: Float32Array.from({ length: size }, (_, v) => sizes[v % sizes.length]![1]),
    entry: Uint8Array.from({ length: size }, (_, v) => Number(v === 0)),
    source: Int32Array.from(edges, ([s]) => s),
    target: Int32Array.from(edges, ([, t]) => t),
    tensor: Int32Array.from(edges, ([s]) => s),
  };
}

const boxSizes = fc.array(fc.tuple(fc.integer({ min: 20, max: 200 }), fc.integer({ min: 16, max: 60 })), {
  minLength: 1,
  maxLength: 5,
});

/** Graphs without cycles, with loose parts, doubled edges and boxes of many sizes. */
export const acyclic = fc.integer({ min: 1, max: 40 }).chain((size) =>
  fc.record({
    size: fc.constant(size),
    sizes: boxSizes,
    edges: fc
      .array(fc.tuple(fc.nat(size - 1), fc.nat(size - 1)), { maxLength: 70 })
      .map((pairs) =>
        pairs.filter(([a, b]) => a !== b).map(([a, b]): [number, number] => (a < b ? [a, b] : [b, a])),
      ),
  }),
);

/** Any graph at all: cycles and edges from a box to itself included. */
export const any = fc.integer({ min: 1, max: 25 }).chain((size) =>
  fc.record({
    size: fc.constant(size),
    sizes: boxSizes,
    edges: fc.array(fc.tuple(fc.nat(size - 1), fc.nat(size - 1)), { maxLength: 50 }),
  }),
);

/** A chain of Inception blocks: input, then four parallel branches and a concatenation, again and again. */
export function inception(blocks: number): Drawn {
  const edges: [number, number][] = [];
  let last = 0;
  let size = 1;
  for (let b = 0; b < blocks; b++) {
    const ends: number[] = [];
    for (const length of [3, 5, 6, 2]) {
      let at = last;
      for (let k = 0; k < length; k++) {
        edges.push([at, size]);
        at = size++;
      }
      ends.push(at);
    }
    for (const end of ends) edges.push([end, size]);
    last = size++;
  }
  return {
    size,
    edges,
    sizes: [
      [116, 41],
      [116, 22],
      [104, 22],
    ],
  };
}

import fc from "fast-check";
import type { LayoutInput } from "../src/graph/layout/types";

export interface Drawn {
  size: number;
  edges: [number, number][];
  sizes: [number, number][];
  /** Frames around boxes; none by default. */
  parent?: number[];
  /** The tensor of each edge; each source has one by default. */
  tensor?: number[];
  across?: boolean;
}

/** Inputs for the layout: the first box is the graph's input. */
export function inputOf({ size, edges, sizes, parent, tensor, across = false }: Drawn): LayoutInput {
  return {
    width: Float32Array.from({ length: size }, (_, v) => sizes[v % sizes.length]![0]),
    height: Float32Array.from({ length: size }, (_, v) => sizes[v % sizes.length]![1]),
    entry: Uint8Array.from({ length: size }, (_, v) => Number(v === 0)),
    source: Int32Array.from(edges, ([s]) => s),
    target: Int32Array.from(edges, ([, t]) => t),
    tensor: Int32Array.from(edges, ([s], e) => tensor?.[e] ?? s),
    parent: Int32Array.from({ length: size }, (_, v) => parent?.[v] ?? -1),
    across,
  };
}

/** Whether a box stands in another, in any depth, or is the other. */
export function within(parent: ArrayLike<number>, inner: number, outer: number): boolean {
  for (let v = inner; v >= 0; v = parent[v]!) if (v === outer) return true;
  return false;
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

/** Graphs in frames, nested to any depth: cycles, edges at frames, several tensors between two boxes. */
export const nested = fc.integer({ min: 1, max: 30 }).chain((size) =>
  fc
    .record({
      sizes: boxSizes,
      edges: fc.array(fc.tuple(fc.nat(size - 1), fc.nat(size - 1)), { maxLength: 45 }),
      around: fc.array(fc.nat(size), { minLength: size, maxLength: size }),
      order: fc.boolean(),
      across: fc.boolean(),
      tensors: fc.integer({ min: 1, max: 3 }),
    })
    .map(({ sizes, edges, around, order, across, tensors }): Drawn => {
      // A frame comes before its members; every second box stands in none.
      const parent = around.map((p, v) => (p < v && p % 2 ? p : -1));
      const free = edges
        .map(([a, b]): [number, number] => (order && a > b ? [b, a] : [a, b]))
        .filter(([a, b]) => a === b || (!within(parent, a, b) && !within(parent, b, a)));
      const tensor = free.map(([s], e) => tensors * s + (e % tensors));
      return { size, sizes, edges: free, parent, tensor, across };
    }),
);

/** Writes graphs node by node, as an exporter does. */
class Writer implements Drawn {
  size = 0;
  edges: [number, number][] = [];
  parent: number[] = [];
  sizes: [number, number][] = [];
  /** The frame that further nodes stand in. */
  frame = -1;

  node(inputs: number[], size: [number, number] = [104, 22]): number {
    for (const s of inputs) this.edges.push([s, this.size]);
    this.sizes.push(size);
    this.parent.push(this.frame);
    return this.size++;
  }

  /** Nodes one after another; returns the last. */
  chain(from: number, ...sizes: [number, number][]): number {
    return sizes.reduce((at, size) => this.node([at], size), from);
  }

  framed<T>(make: () => T): T {
    const outer = this.frame;
    this.frame = this.node([], [80, 22]);
    const made = make();
    this.frame = outer;
    return made;
  }
}

const CONV: [number, number] = [116, 41];
const NORM: [number, number] = [104, 22];
const RELU: [number, number] = [72, 22];

/** A convolution with what follows it; all three stand in one frame where frames are asked for. */
function convolve(net: Writer, x: number, framed = false, relu = true): number {
  const make = (): number => net.chain(x, CONV, NORM, ...(relu ? [RELU] : []));
  return framed ? net.framed(make) : make();
}

/** rtlab.samples' inception chain: a stem, blocks of four branches in 20 nodes, a classifier. */
export function inceptionChain(nodes: number, framed = false): Drawn {
  const net = new Writer();
  let x = convolve(net, net.node([], [90, 22]), framed);
  for (let b = Math.max(1, Math.round((nodes - 6) / 20)); b > 0; b--) {
    const branches = [
      convolve(net, x, framed),
      convolve(net, convolve(net, x, framed), framed),
      convolve(net, convolve(net, x, framed), framed),
      convolve(net, net.node([x], NORM), framed),
    ];
    x = net.node(branches);
  }
  net.chain(x, NORM, NORM, CONV);
  return net;
}

/** rtlab.samples' transformer stack with constants folded away; a mask, if any, is read by every layer. */
export function transformerStack(nodes: number, { mask = false, framed = false } = {}): Drawn {
  const net = new Writer();
  let x = net.node([], [90, 22]);
  const masked = mask ? net.node([], [90, 22]) : -1;
  const layer = (): void => {
    const h = net.node([x], [130, 41]);
    const parts = [0, 1, 2].map(() => net.chain(h, CONV, NORM, NORM, RELU));
    let a = net.chain(net.node(parts.slice(0, 2)), RELU);
    if (mask) a = net.node([a, masked], NORM);
    a = net.node([net.chain(a, RELU), parts[2]!]);
    a = net.node([x, net.chain(a, RELU, NORM, CONV, NORM)]);
    const up = net.chain(a, [130, 41], CONV, NORM);
    const gelu = net.node([up, net.chain(up, RELU, RELU, NORM)]);
    x = net.node([a, net.chain(gelu, RELU, CONV, NORM)]);
  };
  for (let k = Math.max(1, Math.round((nodes - 1) / 33)); k > 0; k--) framed ? net.framed(layer) : layer();
  net.node([x], [130, 41]);
  return net;
}

/** ResNet-50's four stages. */
export function resnet(): Drawn {
  const net = new Writer();
  let x = net.chain(convolve(net, net.node([])), NORM);
  for (const blocks of [3, 4, 6, 3]) {
    for (let k = 0; k < blocks; k++) {
      const short = k ? x : convolve(net, x, false, false);
      const y = convolve(net, convolve(net, convolve(net, x)), false, false);
      x = net.chain(net.node([y, short]), RELU);
    }
  }
  return net;
}

/** A U-Net: every level on the way down is joined to the same level on the way up. */
export function unet(levels: number): Drawn {
  const net = new Writer();
  let x = net.node([]);
  const skips: number[] = [];
  for (let k = 0; k < levels; k++) {
    x = convolve(net, convolve(net, x));
    skips.push(x);
    x = net.node([x]);
  }
  x = convolve(net, convolve(net, x));
  while (skips.length) x = convolve(net, convolve(net, net.node([net.node([x]), skips.pop()!])));
  return net;
}

/** A DenseNet block: every layer reads the outputs of all layers before it. */
export function densenet(layers: number): Drawn {
  const net = new Writer();
  const made = [convolve(net, net.node([]))];
  for (let k = 0; k < layers; k++) made.push(net.chain(net.node([...made]), NORM, RELU, CONV));
  net.node(made);
  return net;
}

/** A repeatable generator of numbers below a bound. */
export function randomNumbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** A random graph without cycles: about 1.6 edges a node, each over at most `window` nodes. */
export function randomDag(size: number, window: number, seed: number): Drawn {
  const random = randomNumbers(seed);
  const net = new Writer();
  const SIZES = [CONV, NORM, RELU];
  net.node([]);
  for (let v = 1; v < size; v++) {
    const from = (): number => v - 1 - random(Math.min(v, window));
    net.node(random(10) < 6 ? [from(), from()] : [from()], SIZES[random(3)]!);
  }
  return net;
}

/** A graph with every stretch of so many nodes in a frame. */
export function framedBy(graph: Drawn, stretch: number): Drawn {
  const frames = Math.ceil(graph.size / stretch);
  return {
    ...graph,
    size: graph.size + frames,
    sizes: [
      ...Array.from({ length: graph.size }, (_, v) => graph.sizes[v % graph.sizes.length]!),
      ...Array.from({ length: frames }, (): [number, number] => [80, 22]),
    ],
    parent: Array.from({ length: graph.size + frames }, (_, v) =>
      v < graph.size ? graph.size + Math.floor(v / stretch) : -1,
    ),
  };
}

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

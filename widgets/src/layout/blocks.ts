import { Digraph, ranks } from "./digraph";
import type { LayoutInput } from "./types";

/** How many ranks an edge may span before it becomes a tunnel, by what feeds it. */
const FAR = { constant: 6, entry: 24, fan: 64 };
const WIDE_FAN = 8;

/** A stretch of the graph between two nodes that every path passes through. */
export interface Block {
  /** Positions in the graph; a cut at the start stands first, one at the end stands last. */
  nodes: number[];
  edges: number[];
  startsAtCut: boolean;
  endsAtCut: boolean;
}

/** Divides a graph without cycles into blocks that follow each other from top to bottom. */
export function divide(input: LayoutInput, source: Int32Array, target: Int32Array): Block[] {
  const size = input.width.length;
  const graph = new Digraph(size, source, target);
  const live = reached(graph, input.entry);
  const rank = ranks(graph, (v) => !live[v] || input.entry[v] === 1);
  const tunnel = tunnels(graph, input.entry, rank, live);

  const order = Array.from({ length: size }, (_, v) => v).sort((a, b) => rank[a]! - rank[b]! || a - b);
  const place = new Int32Array(size);
  order.forEach((v, i) => {
    place[v] = i;
  });

  // A node is a cut when edges from above reach it and none of them passes it.
  const cuts: number[] = [];
  let reach = 0;
  order.forEach((v, i) => {
    if (i > 0 && reach === i) cuts.push(i);
    for (const e of graph.out(v)) if (!tunnel[e]) reach = Math.max(reach, place[target[e]!]!);
  });

  const starts = [0, ...cuts];
  const blocks = starts.map((start, b): Block => {
    const end = cuts[b] ?? size - 1;
    return {
      nodes: order.slice(start, end + 1),
      edges: [],
      startsAtCut: b > 0,
      endsAtCut: b < cuts.length,
    };
  });
  // The last cut may be the last node: then nothing follows it.
  if (blocks.length > 1 && blocks.at(-1)!.nodes.length === 1) blocks.pop();
  const blockOf = new Int32Array(size);
  blocks.forEach((block, b) => {
    for (const v of block.startsAtCut ? block.nodes.slice(1) : block.nodes) blockOf[v] = b;
  });
  // An edge belongs to the block in which it ends: a cut ends one block and starts the next.
  for (let e = 0; e < source.length; e++) if (!tunnel[e]) blocks[blockOf[target[e]!]!]!.edges.push(e);
  return blocks;
}

/** 1 where a node depends on an input of the graph; everywhere when no input is known. */
function reached(graph: Digraph, entry: Uint8Array): Uint8Array {
  const live = new Uint8Array(graph.size);
  const stack: number[] = [];
  for (let v = 0; v < graph.size; v++) if (entry[v]) stack.push(v);
  if (!stack.length) return live.fill(1);
  for (const v of stack) live[v] = 1;
  while (stack.length) {
    for (const e of graph.out(stack.pop()!)) {
      const t = graph.target[e]!;
      if (live[t]) continue;
      live[t] = 1;
      stack.push(t);
    }
  }
  return live;
}

/** Edges that would run far beside everything else: from constants, from inputs, and from wide fans. */
function tunnels(graph: Digraph, entry: Uint8Array, rank: Int32Array, live: Uint8Array): Uint8Array {
  const tunnel = new Uint8Array(graph.source.length);
  for (let v = 0; v < graph.size; v++) {
    const out = graph.out(v);
    if (out.length < 2) continue;
    const wide = out.length >= WIDE_FAN;
    const outside = !live[v] || entry[v];
    // A mask that every block reads is as far from the picture's main line as a constant is.
    const far =
      !live[v] || (outside && wide) ? FAR.constant : outside ? FAR.entry : wide ? FAR.fan : Infinity;
    for (const e of out) if (rank[graph.target[e]!]! - rank[v]! > far) tunnel[e] = 1;
  }
  return tunnel;
}

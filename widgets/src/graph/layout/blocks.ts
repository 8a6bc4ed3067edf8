import { Digraph, ranks } from "./digraph";

/** How many ranks an edge may span before it becomes a tunnel, by what feeds it. */
const FAR = { constant: 6, entry: 24, fan: 64 };
const WIDE_FAN = 8;
/** So many wires at one box are a black wedge across the page: all of them become tunnels. */
const CROWD = 256;

/** A stretch of the graph between two nodes that every path passes through. */
export interface Block {
  /** Positions in the graph; a cut at the start stands first, one at the end stands last. */
  nodes: Int32Array;
  edges: number[];
  startsAtCut: boolean;
  endsAtCut: boolean;
}

/** The borders of the frame around a graph, where they are nodes of it: above and below everything else. */
export interface Borders {
  top: number;
  bottom: number;
}

/**
 * Divides a graph without cycles into blocks that follow each other from top to bottom. The borders of a frame count
 * as cuts. Tunnels belong to no block.
 */
export function divide(
  input: { width: ArrayLike<number>; entry: Uint8Array },
  source: Int32Array,
  target: Int32Array,
  { top, bottom }: Borders = { top: -1, bottom: -1 },
  tunnel?: Uint8Array,
): Block[] {
  const size = input.width.length;
  const graph = new Digraph(size, source, target);
  const live = reached(graph, input.entry);
  const rank = ranks(graph, (v) => !live[v] || input.entry[v] === 1);
  const skip = tunnel ?? tunnels(graph, input.entry, rank, live);
  if (top >= 0) rank[top] = -1;
  if (bottom >= 0) rank[bottom] = size;

  const order = byRank(rank);
  const place = new Int32Array(size);
  for (let i = 0; i < size; i++) place[order[i]!] = i;

  // A node is a cut when edges from above reach it and none of them passes it.
  const cuts: number[] = [];
  let reach = 0;
  let sink = false;
  for (let i = 0; i < size; i++) {
    if (i > 0 && reach === i) {
      if (i < size - 1 || order[i] === bottom || !sink) cuts.push(i);
      sink = false;
    }
    let feeds = false;
    const v = order[i]!;
    for (let at = graph.outStart[v]!; at < graph.outStart[v + 1]!; at++) {
      const e = graph.outEdge[at]!;
      if (skip[e]) continue;
      feeds = true;
      reach = Math.max(reach, place[target[e]!]!);
    }
    sink ||= !feeds;
  }

  const blocks: Block[] = [];
  const blockOf = new Int32Array(size);
  for (let b = 0; b <= cuts.length; b++) {
    const start = b ? cuts[b - 1]! : 0;
    const end = cuts[b] ?? size - 1;
    // The last cut may be the last node: then nothing follows it.
    if (b && start === end) break;
    const nodes = order.subarray(start, end + 1);
    blocks.push({
      nodes,
      edges: [],
      startsAtCut: b > 0 || nodes[0] === top,
      endsAtCut: b < cuts.length || nodes.at(-1) === bottom,
    });
    for (let i = b ? start + 1 : 0; i <= end; i++) blockOf[order[i]!] = b;
  }
  // An edge belongs to the block in which it ends: a cut ends one block and starts the next.
  for (let e = 0; e < source.length; e++) if (!skip[e]) blocks[blockOf[target[e]!]!]!.edges.push(e);
  return blocks;
}

/** The edges of a graph without cycles that are not drawn as wires. */
export function farEdges(graph: Digraph, entry: Uint8Array): Uint8Array {
  const live = reached(graph, entry);
  return tunnels(
    graph,
    entry,
    ranks(graph, (v) => !live[v] || entry[v] === 1),
    live,
  );
}

/** Nodes by rank, and by number within a rank. */
function byRank(rank: Int32Array): Int32Array {
  let low = 0;
  let high = 0;
  for (const r of rank) {
    low = Math.min(low, r);
    high = Math.max(high, r);
  }
  const next = new Int32Array(high - low + 2);
  for (const r of rank) next[r - low + 1]!++;
  for (let r = 1; r < next.length; r++) next[r]! += next[r - 1]!;
  const order = new Int32Array(rank.length);
  for (let v = 0; v < rank.length; v++) order[next[rank[v]! - low]!++] = v;
  return order;
}

/** 1 where a node depends on an input of the graph; everywhere when no input is known. */
function reached(graph: Digraph, entry: Uint8Array): Uint8Array {
  const live = new Uint8Array(graph.size);
  const stack: number[] = [];
  for (let v = 0; v < graph.size; v++) if (entry[v]) stack.push(v);
  if (!stack.length) return live.fill(1);
  for (const v of stack) live[v] = 1;
  while (stack.length) {
    const v = stack.pop()!;
    for (let at = graph.outStart[v]!; at < graph.outStart[v + 1]!; at++) {
      const t = graph.target[graph.outEdge[at]!]!;
      if (live[t]) continue;
      live[t] = 1;
      stack.push(t);
    }
  }
  return live;
}

/** Edges that would run far beside everything else: from constants, from inputs, from wide fans; and crowds. */
function tunnels(graph: Digraph, entry: Uint8Array, rank: Int32Array, live: Uint8Array): Uint8Array {
  const tunnel = new Uint8Array(graph.source.length);
  for (let v = 0; v < graph.size; v++) {
    if (graph.fed(v) > CROWD) {
      const into = graph.in(v);
      if (crowd(into, graph.source)) for (const e of into) tunnel[e] = 1;
    }
    if (graph.feeds(v) < 2) continue;
    const out = graph.out(v);
    const wide = out.length >= WIDE_FAN;
    const outside = !live[v] || entry[v];
    // A mask that every block reads is as far from the picture's main line as a constant is.
    const far =
      !live[v] || (outside && wide) ? FAR.constant : outside ? FAR.entry : wide ? FAR.fan : Infinity;
    const all = out.length > CROWD && crowd(out, graph.target);
    for (const e of out) if (all || rank[graph.target[e]!]! - rank[v]! > far) tunnel[e] = 1;
  }
  return tunnel;
}

/** Whether edges have too many other ends; many edges between two boxes are drawn as one. */
const crowd = (edges: Int32Array, end: ArrayLike<number>): boolean =>
  new Set(Array.from(edges, (e) => end[e]!)).size > CROWD;

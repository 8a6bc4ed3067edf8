/** Adjacency of a directed graph in compressed rows: edge ids leaving and entering each node. */
export class Digraph {
  readonly size: number;
  readonly source: ArrayLike<number>;
  readonly target: ArrayLike<number>;
  /** The edges leaving node v are `outEdge` from `outStart[v]` to `outStart[v + 1]`; those entering it likewise. */
  readonly outStart: Int32Array;
  readonly outEdge: Int32Array;
  readonly inStart: Int32Array;
  readonly inEdge: Int32Array;

  constructor(size: number, source: ArrayLike<number>, target: ArrayLike<number>) {
    this.size = size;
    this.source = source;
    this.target = target;
    [this.outStart, this.outEdge] = rows(size, source);
    [this.inStart, this.inEdge] = rows(size, target);
  }

  // A view of a row costs more than to walk it: where all rows are walked, that is done in place.
  out(node: number): Int32Array {
    return this.outEdge.subarray(this.outStart[node]!, this.outStart[node + 1]!);
  }

  in(node: number): Int32Array {
    return this.inEdge.subarray(this.inStart[node]!, this.inStart[node + 1]!);
  }

  feeds(node: number): number {
    return this.outStart[node + 1]! - this.outStart[node]!;
  }

  fed(node: number): number {
    return this.inStart[node + 1]! - this.inStart[node]!;
  }
}

function rows(size: number, end: ArrayLike<number>): [Int32Array, Int32Array] {
  const start = new Int32Array(size + 1);
  for (let e = 0; e < end.length; e++) start[end[e]! + 1]!++;
  for (let v = 0; v < size; v++) start[v + 1]! += start[v]!;
  const next = start.slice();
  const edges = new Int32Array(end.length);
  for (let e = 0; e < end.length; e++) edges[next[end[e]!]!++] = e;
  return [start, edges];
}

/** The edges that close a cycle in a depth-first walk from the sources; reversing them leaves no cycle. */
export function backEdges(graph: Digraph): Uint8Array {
  const back = new Uint8Array(graph.source.length);
  const NEW = 0;
  const OPEN = 1;
  const DONE = 2;
  const state = new Uint8Array(graph.size);
  const { outStart, outEdge, target } = graph;
  const cursor = outStart.slice();
  const stack: number[] = [];
  const walk = (root: number): void => {
    stack.push(root);
    state[root] = OPEN;
    while (stack.length) {
      const v = stack[stack.length - 1]!;
      if (cursor[v]! === outStart[v + 1]) {
        state[v] = DONE;
        stack.pop();
        continue;
      }
      const e = outEdge[cursor[v]!++]!;
      const t = target[e]!;
      if (state[t] === OPEN) back[e] = 1;
      else if (state[t] === NEW) {
        state[t] = OPEN;
        stack.push(t);
      }
    }
  };
  for (let v = 0; v < graph.size; v++) if (state[v] === NEW && graph.fed(v) === 0) walk(v);
  for (let v = 0; v < graph.size; v++) if (state[v] === NEW) walk(v);
  return back;
}

/** Nodes such that every edge goes forward. The graph must have no cycle; edges from a node to itself do not count. */
export function topological(graph: Digraph): Int32Array {
  const { source, target, outStart, outEdge } = graph;
  const waiting = new Int32Array(graph.size);
  for (let e = 0; e < target.length; e++) {
    if (source[e] !== target[e]) waiting[target[e]!]!++;
  }
  const order = new Int32Array(graph.size);
  let end = 0;
  for (let v = 0; v < graph.size; v++) if (!waiting[v]) order[end++] = v;
  for (let k = 0; k < end; k++) {
    const v = order[k]!;
    for (let at = outStart[v]!; at < outStart[v + 1]!; at++) {
      const t = target[outEdge[at]!]!;
      if (t !== v && --waiting[t]! === 0) order[end++] = t;
    }
  }
  return order;
}

/** Longest path from the sources; nodes marked `loose` are then pulled down beside their first consumer. */
export function ranks(graph: Digraph, loose: (node: number) => boolean): Int32Array {
  const order = topological(graph);
  const { outStart, outEdge, target } = graph;
  const rank = new Int32Array(graph.size);
  for (let k = 0; k < order.length; k++) {
    const v = order[k]!;
    for (let at = outStart[v]!; at < outStart[v + 1]!; at++) {
      const t = target[outEdge[at]!]!;
      if (rank[t]! <= rank[v]! && t !== v) rank[t] = rank[v]! + 1;
    }
  }
  for (let k = order.length - 1; k >= 0; k--) {
    const v = order[k]!;
    if (!graph.feeds(v) || !loose(v)) continue;
    let first = Number.POSITIVE_INFINITY;
    for (let at = outStart[v]!; at < outStart[v + 1]!; at++) {
      const t = target[outEdge[at]!]!;
      if (t !== v) first = Math.min(first, rank[t]! - 1);
    }
    if (first < Number.POSITIVE_INFINITY) rank[v] = first;
  }
  return rank;
}

/** The weakly connected component of every node, numbered in the order of their first nodes. */
export function components(graph: Digraph): { of: Int32Array; count: number } {
  const { source, target, outStart, outEdge, inStart, inEdge } = graph;
  const of = new Int32Array(graph.size).fill(-1);
  let count = 0;
  const stack: number[] = [];
  const visit = (v: number): void => {
    if (of[v] !== -1) return;
    of[v] = count;
    stack.push(v);
  };
  for (let root = 0; root < graph.size; root++) {
    if (of[root] !== -1) continue;
    visit(root);
    while (stack.length) {
      const v = stack.pop()!;
      for (let at = outStart[v]!; at < outStart[v + 1]!; at++) visit(target[outEdge[at]!]!);
      for (let at = inStart[v]!; at < inStart[v + 1]!; at++) visit(source[inEdge[at]!]!);
    }
    count++;
  }
  return { of, count };
}

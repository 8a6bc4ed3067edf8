/** Adjacency of a directed graph in compressed rows: edge ids leaving and entering each node. */
export class Digraph {
  readonly size: number;
  readonly source: ArrayLike<number>;
  readonly target: ArrayLike<number>;
  readonly #outStart: Int32Array;
  readonly #outEdge: Int32Array;
  readonly #inStart: Int32Array;
  readonly #inEdge: Int32Array;

  constructor(size: number, source: ArrayLike<number>, target: ArrayLike<number>) {
    this.size = size;
    this.source = source;
    this.target = target;
    [this.#outStart, this.#outEdge] = rows(size, source);
    [this.#inStart, this.#inEdge] = rows(size, target);
  }

  out(node: number): Int32Array {
    return this.#outEdge.subarray(this.#outStart[node]!, this.#outStart[node + 1]!);
  }

  in(node: number): Int32Array {
    return this.#inEdge.subarray(this.#inStart[node]!, this.#inStart[node + 1]!);
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
  const cursor = new Int32Array(graph.size);
  const stack: number[] = [];
  const walk = (root: number): void => {
    stack.push(root);
    state[root] = OPEN;
    while (stack.length) {
      const v = stack[stack.length - 1]!;
      const out = graph.out(v);
      if (cursor[v]! === out.length) {
        state[v] = DONE;
        stack.pop();
        continue;
      }
      const e = out[cursor[v]!++]!;
      const t = graph.target[e]!;
      if (state[t] === OPEN) back[e] = 1;
      else if (state[t] === NEW) {
        state[t] = OPEN;
        stack.push(t);
      }
    }
  };
  for (let v = 0; v < graph.size; v++) if (state[v] === NEW && graph.in(v).length === 0) walk(v);
  for (let v = 0; v < graph.size; v++) if (state[v] === NEW) walk(v);
  return back;
}

/** Nodes such that every edge goes forward. The graph must have no cycle; edges from a node to itself do not count. */
export function topological(graph: Digraph): Int32Array {
  const waiting = new Int32Array(graph.size);
  for (let e = 0; e < graph.target.length; e++) {
    if (graph.source[e] !== graph.target[e]) waiting[graph.target[e]!]!++;
  }
  const order = new Int32Array(graph.size);
  let end = 0;
  for (let v = 0; v < graph.size; v++) if (!waiting[v]) order[end++] = v;
  for (let k = 0; k < end; k++) {
    for (const e of graph.out(order[k]!)) {
      const t = graph.target[e]!;
      if (t !== order[k] && --waiting[t]! === 0) order[end++] = t;
    }
  }
  return order;
}

/** Longest path from the sources; nodes marked `loose` are then pulled down beside their first consumer. */
export function ranks(graph: Digraph, loose: (node: number) => boolean): Int32Array {
  const order = topological(graph);
  const rank = new Int32Array(graph.size);
  for (const v of order) {
    for (const e of graph.out(v)) {
      const t = graph.target[e]!;
      if (rank[t]! <= rank[v]! && t !== v) rank[t] = rank[v]! + 1;
    }
  }
  for (let k = order.length - 1; k >= 0; k--) {
    const v = order[k]!;
    const out = graph.out(v);
    if (!out.length || !loose(v)) continue;
    let first = Number.POSITIVE_INFINITY;
    for (const e of out) if (graph.target[e] !== v) first = Math.min(first, rank[graph.target[e]!]! - 1);
    if (first < Number.POSITIVE_INFINITY) rank[v] = first;
  }
  return rank;
}

/** The weakly connected component of every node, numbered in the order of their first nodes. */
export function components(graph: Digraph): { of: Int32Array; count: number } {
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
      for (const e of graph.out(v)) visit(graph.target[e]!);
      for (const e of graph.in(v)) visit(graph.source[e]!);
    }
    count++;
  }
  return { of, count };
}

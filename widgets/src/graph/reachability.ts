import type { Graph } from "../core/contract";

/** For each box the boxes that it leads to, or comes from, one after another in `to` from `start`. */
interface Neighbours {
  start: Int32Array;
  to: Int32Array;
}

interface Index {
  place: Map<string, number>;
  forward: Neighbours;
  back: Neighbours;
}

const indices = new WeakMap<Graph, Index>();

/** All boxes from which the given ones can be reached, these included; in the order of the graph. */
export const upstream = (graph: Graph, ids: Iterable<string>): string[] => reached(graph, ids, "back");

/** All boxes that can be reached from the given ones, these included; in the order of the graph. */
export const downstream = (graph: Graph, ids: Iterable<string>): string[] => reached(graph, ids, "forward");

/** All boxes on any directed path between two sets, whichever comes first; none where none leads from one to the other. */
export function paths(graph: Graph, a: readonly string[], b: readonly string[]): string[] {
  for (const [from, to] of [
    [a, b],
    [b, a],
  ] as const) {
    const before = new Set(upstream(graph, to));
    const ends = from.filter((id) => before.has(id));
    if (ends.length) return downstream(graph, ends).filter((id) => before.has(id));
  }
  return [];
}

function reached(graph: Graph, ids: Iterable<string>, way: "forward" | "back"): string[] {
  const { place, [way]: next } = indexOf(graph);
  const visited = new Uint8Array(graph.boxes.length);
  const stack: number[] = [];
  const visit = (v: number): void => {
    if (visited[v]) return;
    visited[v] = 1;
    stack.push(v);
  };
  for (const id of ids) if (place.has(id)) visit(place.get(id)!);
  for (let v = stack.pop(); v !== undefined; v = stack.pop())
    for (let k = next.start[v]!; k < next.start[v + 1]!; k++) visit(next.to[k]!);
  return graph.boxes.flatMap(({ id }, v) => (visited[v] ? id : []));
}

function indexOf(graph: Graph): Index {
  const cached = indices.get(graph);
  if (cached) return cached;
  // What a body computes leaves it through the box whose body it is.
  const bodies = graph.boxes.flatMap(({ parent }, v) => (parent < 0 ? [] : { source: v, target: parent }));
  const edges = [...graph.edges, ...bodies];
  const size = graph.boxes.length;
  const index = {
    place: new Map(graph.boxes.map(({ id }, v) => [id, v])),
    forward: neighbours(size, edges, "source", "target"),
    back: neighbours(size, edges, "target", "source"),
  };
  indices.set(graph, index);
  return index;
}

type End = "source" | "target";

function neighbours(size: number, edges: readonly Record<End, number>[], from: End, to: End): Neighbours {
  const start = new Int32Array(size + 1);
  for (const edge of edges) start[edge[from] + 1]!++;
  for (let v = 0; v < size; v++) start[v + 1]! += start[v]!;
  const fill = start.slice();
  const list = new Int32Array(edges.length);
  for (const edge of edges) list[fill[edge[from]]!++] = edge[to];
  return { start, to: list };
}

import type { Fused } from "../core/build_log";
import type { Box, Edge, EngineView, Graph, Grouping } from "../core/contract";
import type { Mapping } from "../core/mapping";
import { append } from "../core/multimap";
import { grouped } from "./groups";

/**
 * A graph as a pane draws it: sync steps left out, groups folded to one box or open as a frame around their members,
 * and only the boxes that were asked for. All positions are those of `graph.boxes`.
 */
export interface VisibleGraph {
  graph: Graph;
  /** The position of the frame that a box stands in, or -1. A frame stands before its members. */
  parent: Int32Array;
  frames: ReadonlySet<number>;
  /** Boxes that can be folded or opened: groups, and nodes with a body. */
  foldable: ReadonlySet<number>;
  /** Every box, hidden ones included, to the position that shows it. */
  place: ReadonlyMap<string, number>;
  /** The boxes of the payload that a box stands for; a node or layer of a repeated block for those of all copies. */
  members(id: string): readonly string[];
  /** How many copies of a repeated block a box stands for; 0 where another stands for it. */
  copies(id: string): number;
}

export interface Arrangement {
  grouping: Grouping;
  folds: ReadonlySet<string>;
  only: ReadonlySet<string> | null;
  fused?: readonly Fused[];
}

export const PLAIN: Arrangement = { grouping: "none", folds: new Set(), only: null };

/** Applies an arrangement to a graph; `engine` tells the frames of the grouping by layers. */
export function arrange(
  graph: Graph,
  arrangement: Arrangement,
  engine: EngineView | null,
  links: Mapping,
): VisibleGraph {
  const tree = grouped(graph, arrangement.grouping, engine, links, arrangement.fused);
  const { boxes, parent, copies } = tree;
  const size = boxes.length;
  const within = children(parent);
  const order = topDown(parent, within);
  // What shows each box: itself, or its outermost folded ancestor.
  const stand = Int32Array.from(boxes, (_, v) => v);
  for (const [first, all] of copies) for (const v of all) stand[v] = first;
  const shownBy = new Int32Array(size);
  for (const v of order) {
    const p = parent[v]!;
    const hidden = p >= 0 && (shownBy[p] !== p || folded(boxes[p]!, tree.open[p]!, arrangement.folds));
    shownBy[v] = hidden ? shownBy[p]! : stand[v]!;
  }
  const visible = new Uint8Array(size);
  const only = arrangement.only;
  for (const v of order) {
    if (shownBy[v] !== v) continue;
    const shown = (leaf: number): boolean =>
      (copies.get(leaf) ?? [leaf]).some((c) => only!.has(boxes[c]!.id));
    if (only && !leaves(v, within).some(shown)) continue;
    visible[v] = 1;
  }
  const list = order.filter((v) => visible[v]);
  const at = new Int32Array(size).fill(-1);
  list.forEach((v, i) => {
    at[v] = i;
  });
  const place = new Map<string, number>();
  for (let v = 0; v < size; v++) if (at[shownBy[v]!]! >= 0) place.set(boxes[v]!.id, at[shownBy[v]!]!);
  const frames = new Set<number>();
  const foldable = new Set<number>();
  list.forEach((v, i) => {
    if (!within[v]!.length) return;
    foldable.add(i);
    if (within[v]!.some((child) => visible[child])) frames.add(i);
  });
  const edges = joined(graph.edges, shownBy, at, parent, stand);
  if (only) for (const edge of bridges(graph.edges, shownBy, at, visible, edges)) edges.push(edge);
  const visibleBoxes = list.map((v) => boxes[v]!);
  return {
    graph: { ...graph, boxes: visibleBoxes, edges },
    parent: Int32Array.from(list, (v) => (parent[v]! < 0 ? -1 : at[parent[v]!]!)),
    frames,
    foldable,
    place,
    ...membership(boxes, within, stand, copies),
  };
}

const folded = (box: Box, open: number, folds: ReadonlySet<string>): boolean =>
  Boolean(open) === folds.has(box.id);

function children(parent: Int32Array): number[][] {
  const none: number[] = [];
  const within: number[][] = new Array(parent.length).fill(none);
  parent.forEach((p, v) => {
    if (p < 0) return;
    if (within[p] === none) within[p] = [];
    within[p]!.push(v);
  });
  return within;
}

/** Parents before their children, otherwise in the order of the boxes; a group counts as its first member does. */
function topDown(parent: Int32Array, within: number[][]): number[] {
  const first = Int32Array.from(parent, (_, v) => v);
  // A group stands behind its members in the list, or before them as the owner of a body does.
  for (let v = 0; v < parent.length; v++)
    for (let [at, p] = [v, parent[v]!]; p >= 0 && first[at]! < first[p]!; [at, p] = [p, parent[p]!])
      first[p] = first[at]!;
  const order: number[] = [];
  const byFirst = (a: number, b: number): number => first[a]! - first[b]! || a - b;
  const visit = (v: number): void => {
    order.push(v);
    if (within[v]!.length) for (const child of within[v]!.sort(byFirst)) visit(child);
  };
  const roots: number[] = [];
  for (let v = 0; v < parent.length; v++) if (parent[v]! < 0) roots.push(v);
  for (const v of roots.sort(byFirst)) visit(v);
  return order;
}

/** The boxes of the payload in a group, in any depth; a box without members is its own. */
function leaves(v: number, within: number[][]): number[] {
  const leaves: number[] = [];
  const stack = [v];
  while (stack.length) {
    const at = stack.pop()!;
    const inside = within[at]!;
    if (!inside.length) leaves.push(at);
    else for (let k = inside.length - 1; k >= 0; k--) stack.push(inside[k]!);
  }
  return leaves;
}

function membership(
  boxes: readonly Box[],
  within: number[][],
  stand: Int32Array,
  copies: ReadonlyMap<number, readonly number[]>,
): Pick<VisibleGraph, "members" | "copies"> {
  let index: Map<string, number> | null = null;
  const at = (id: string): number | undefined => {
    index ??= new Map(boxes.map((box, v) => [box.id, v]));
    return index.get(id);
  };
  const firsts = (run: number): number[] => within[run]!.filter((child) => stand[child] === child);
  const count = (first: number): number => copies.get(first)?.length ?? 1;
  const most = (run: number): number => firsts(run).reduce((sum, first) => Math.max(sum, count(first)), 1);
  /** The boxes at the bottom of a group; of a repeated block, copy by copy. */
  const inside = (v: number): number[] =>
    boxes[v]!.op === "repeat"
      ? Array.from({ length: most(v) }, (_, k) => firsts(v).flatMap((first) => copies.get(first)![k] ?? []))
          .flat()
          .flatMap((box) => leaves(box, within))
      : leaves(v, within);
  return {
    members(id) {
      const v = at(id);
      if (v === undefined || boxes[v]!.kind !== "group")
        return copies.get(v ?? -1)?.map((one) => boxes[one]!.id) ?? [id];
      return inside(v)
        .map((leaf) => boxes[leaf]!)
        .filter(({ kind }) => kind === "node" || kind === "layer")
        .map((box) => box.id);
    },
    copies(id) {
      const v = at(id);
      if (v === undefined) return 1;
      if (boxes[v]!.op === "repeat") return most(v);
      return stand[v] === v ? count(v) : 0;
    },
  };
}

/** Edges between what is shown, each tensor once between two boxes; of copies of a block one edge stands for all. */
function joined(
  edges: readonly Edge[],
  shownBy: Int32Array,
  at: Int32Array,
  parent: Int32Array,
  stand: Int32Array,
): Edge[] {
  const size = parent.length;
  const keys = new Set<string>();
  const pairs = new Set<number>();
  const list: Edge[] = [];
  for (const edge of edges) {
    const s = shownBy[edge.source]!;
    const t = shownBy[edge.target]!;
    if (at[s]! < 0 || at[t]! < 0) continue;
    const moved = s !== edge.source || t !== edge.target;
    const pair = s * size + t;
    if (moved) {
      if (s === t) continue;
      const copied = stand[edge.source] !== edge.source || stand[edge.target] !== edge.target;
      const key = `${pair}:${edge.value}`;
      if (keys.has(key) || (copied && pairs.has(pair))) continue;
      keys.add(key);
    }
    if (s !== t && (stands(s, t, parent) || stands(t, s, parent))) continue;
    pairs.add(pair);
    const [source, target] = [at[s]!, at[t]!];
    list.push(source === edge.source && target === edge.target ? edge : { ...edge, source, target });
  }
  return list;
}

function stands(inner: number, outer: number, parent: Int32Array): boolean {
  for (let v = parent[inner]!; v >= 0; v = parent[v]!) if (v === outer) return true;
  return false;
}

/** So many boxes left out are walked over from each kept one, and so many of those behind them are joined to it. */
const FAR = 256;
const MOST_BRIDGES = 4;

/** Where paths lead from one kept box to another through boxes left out, one edge says so, to the nearest ones. */
function bridges(
  edges: readonly Edge[],
  shownBy: Int32Array,
  at: Int32Array,
  visible: Uint8Array,
  direct: readonly Edge[],
): Edge[] {
  const next = new Map<number, number[]>();
  for (const { source, target } of edges) append(next, shownBy[source]!, shownBy[target]!);
  const joined = new Set(direct.map(({ source, target }) => `${source}:${target}`));
  const bridgeEdges: Edge[] = [];
  for (let v = 0; v < visible.length; v++) {
    if (!visible[v]) continue;
    // The nearest first: past a residual connection nearly everything can be reached.
    const queue = [...new Set(next.get(v))].filter((t) => !visible[t]);
    const visited = new Set(queue);
    const last = bridgeEdges.length + MOST_BRIDGES;
    for (let k = 0; k < Math.min(queue.length, FAR) && bridgeEdges.length < last; k++) {
      for (const t of next.get(queue[k]!) ?? []) {
        if (visited.has(t)) continue;
        visited.add(t);
        if (!visible[t]) queue.push(t);
        else if (t !== v && !joined.has(`${at[v]}:${at[t]}`)) {
          joined.add(`${at[v]}:${at[t]}`);
          bridgeEdges.push({ source: at[v]!, target: at[t]!, value: "", label: "…" });
        }
      }
    }
  }
  return bridgeEdges;
}

/**
 * Steps that keep the engine's books, such as signals and waits: they stand for no node and no tensor joins them to
 * another. A graph without any edge has none, because there it is the file that lacks the tensors.
 */
export function syncSteps(graph: Graph): ReadonlySet<string> {
  if (!graph.edges.length) return new Set();
  const joined = new Set(graph.edges.flatMap(({ source, target }) => [source, target]));
  const loose = (box: Box, at: number): boolean =>
    box.kind === "layer" && !box.chips.length && !joined.has(at);
  return new Set(graph.boxes.filter(loose).map(({ id }) => id));
}

/** Kinds of entries that launch no kernel; the engine's count of layers leaves them out, as in `rtlab.core.engine`. */
export const CONTROL: ReadonlySet<string> = new Set(["signal", "wait", "jmp", "cjmp"]);

/** The graph without its sync steps, which would stand unconnected in it. */
export function withoutSync(graph: Graph): Graph {
  const sync = syncSteps(graph);
  if (!sync.size) return graph;
  const boxes = graph.boxes.filter(({ id }) => !sync.has(id));
  const place = new Map(boxes.map(({ id }, i) => [id, i]));
  const at = (old: number): number => place.get(graph.boxes[old]!.id)!;
  const edges = graph.edges.map((edge) => ({ ...edge, source: at(edge.source), target: at(edge.target) }));
  const repeats = graph.repeats.map((run) => ({ ...run, rows: run.rows.map((row) => row.map(at)) }));
  return { ...graph, boxes, edges, repeats };
}

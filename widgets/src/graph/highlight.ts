import type { Graph, Side } from "../core/contract";
import { ending, plural } from "../core/format";
import { append } from "../core/multimap";
import type { PaneSet } from "./paneset";
import { downstream, paths, upstream } from "./reachability";

export type Way = "up" | "down" | "path";

const NAME = 36;
const WORD = { node: "node", layer: "layer", other: "layer" } as const;

/** Highlights what is upstream, downstream or between boxes. */
export function trace({ study, hint }: PaneSet, side: Side, ids: readonly string[], way: Way): void {
  const graph = study.whole(side);
  hint.value = null;
  if (!graph) return;
  const say = (words: string): void => {
    hint.value = { side, words };
  };
  const name = (of: readonly string[]): string =>
    of.length === 1 ? ending(study.box(side, of[0]!)?.title || of[0]!, NAME) : plural(of.length, WORD[side]);
  const show = (list: readonly string[], words: string, less: number): void => {
    study.focus.value = {
      side,
      ids: new Set(list),
      words: `${plural(countOf(graph, list) - less, WORD[side])} ${words}`,
      alone: false,
    };
  };
  if (way !== "path") {
    if (!ids.length)
      say(`Select a ${WORD[side]} to see what is ${way === "up" ? "upstream" : "downstream"} of it.`);
    else if (way === "up") show(upstream(graph, ids), `upstream of ${name(ids)}`, countOf(graph, ids));
    else show(downstream(graph, ids), `downstream of ${name(ids)}`, countOf(graph, ids));
    return;
  }
  const place = study.visible(side)?.place;
  const ends = new Map<number | string, string[]>();
  for (const id of ids) append(ends, place?.get(id) ?? id, id);
  const [a, b, ...more] = ends.values();
  if (!a || !b || more.length) {
    say(`Select two ${WORD[side]}s to see the paths between them: click one, then Shift-click the other.`);
    return;
  }
  const between = paths(graph, a, b);
  if (between.length) show(between, `on paths between ${name(a)} and ${name(b)}`, 0);
  else say(`No path leads from ${name(a)} to ${name(b)}, nor back.`);
}

/** How many nodes or layers; inputs and outputs of the graph are not counted. */
export function countOf(graph: Graph, ids: Iterable<string>): number {
  const targets = new Set(ids);
  return graph.boxes.filter(({ id, kind }) => targets.has(id) && (kind === "node" || kind === "layer"))
    .length;
}

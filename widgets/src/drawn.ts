import type { Box, Graph } from "./contract";
import { plural } from "./format";

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

/** The graph without its sync steps, which would stand unconnected in it; the subtitle counts them. */
export function withoutSync(graph: Graph): Graph {
  const sync = syncSteps(graph);
  if (!sync.size) return graph;
  const boxes = graph.boxes.filter(({ id }) => !sync.has(id));
  const place = new Map(boxes.map(({ id }, i) => [id, i]));
  const at = (old: number): number => place.get(graph.boxes[old]!.id)!;
  const edges = graph.edges.map((edge) => ({ ...edge, source: at(edge.source), target: at(edge.target) }));
  const layers = boxes.filter(({ kind }) => kind === "layer").length;
  const told = graph.subtitle.replace(/\d+ (\w+?)s?$/, (_, noun: string) => plural(layers, noun));
  const subtitle = [told, plural(sync.size, "sync step")].filter(Boolean).join(" · ");
  return { ...graph, boxes, edges, subtitle };
}

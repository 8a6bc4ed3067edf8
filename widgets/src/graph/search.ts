import type { Box, Graph } from "../core/contract";

const texts = new WeakMap<Graph, string[]>();

/**
 * Ids of the boxes that say all words: in their name, operators, tensors, shapes, types or precision. `3x224` finds
 * 3×224 as well.
 */
export function find(graph: Graph, query: string): string[] {
  const words = plain(query).split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const lines = texts.get(graph) ?? graph.boxes.map(textOf);
  if (!graph.later) texts.set(graph, lines);
  return graph.boxes.flatMap(({ id }, i) => (words.every((word) => lines[i]!.includes(word)) ? id : []));
}

const plain = (text: string): string => text.toLowerCase().replace(/(?<=\d)x(?=\d)/g, "×");

function textOf({ id, title, op, precision, lines, chips, inputs, outputs }: Box): string {
  // The name of a tensor is found where it is made, and not again at each of its readers.
  const ports = [...inputs.map((port) => (port.constant ? port : { ...port, name: "" })), ...outputs].flatMap(
    ({ name, shape, dtype, format }) => [name, shape, dtype, format],
  );
  return plain([id, title, op, precision, ...lines, ...chips.map((chip) => chip.op), ...ports].join("\n"));
}

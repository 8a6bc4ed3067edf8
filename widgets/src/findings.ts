import type { Finding } from "./contract";
import type { ExplorerState } from "./explorerstate";

/** What is wrong with the engine on screen, then what is with the model's quantization; what costs most first. */
export function findingsOf(explorer: ExplorerState): Finding[] {
  return [...byCost(explorer.study.engine.value?.findings ?? []), ...byCost(explorer.findings.value.items)];
}

/** Those without a time keep their order behind those that have one. */
export const byCost = (items: readonly Finding[]): Finding[] =>
  items.toSorted((a, b) => (b.microseconds ?? -1) - (a.microseconds ?? -1));

/** The rules that findings break, with their numbers. */
export function rulesOf(items: readonly Finding[]): [rule: string, count: number][] {
  const counts = new Map<string, number>();
  for (const { rule } of items) counts.set(rule, (counts.get(rule) ?? 0) + 1);
  return [...counts];
}

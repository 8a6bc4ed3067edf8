import type { Finding } from "./contract";

/** The rules that findings break, with their numbers. */
export function rulesOf(items: readonly Finding[]): [rule: string, count: number][] {
  const counts = new Map<string, number>();
  for (const { rule } of items) counts.set(rule, (counts.get(rule) ?? 0) + 1);
  return [...counts];
}

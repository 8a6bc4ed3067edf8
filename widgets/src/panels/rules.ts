import type { Finding } from "../core/contract";

export function rulesOf(items: readonly Finding[]): [rule: string, count: number][] {
  const counts = new Map<string, number>();
  for (const { rule } of items) counts.set(rule, (counts.get(rule) ?? 0) + 1);
  return [...counts];
}

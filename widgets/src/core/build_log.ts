import type { BuildPass, BuildStory, Contest } from "./contract";
import { append } from "./multimap";

/** Nodes that are one layer after some steps of a build: the last step that joined them, from 1, and its words. */
export interface Fused {
  nodes: string[];
  step: number;
  text: string;
}

export const lastJoin = (story: BuildStory | null, step: number): number =>
  (story?.steps ?? []).slice(0, Math.max(0, step)).findLastIndex(({ joins }) => joins) + 1;

/** The nodes that each group has after so many steps: those that steps joined, directly or through others. */
export function fusedAfter(story: BuildStory | null, step: number): Fused[] {
  const above = new Map<string, string>();
  const root = (id: string): string => {
    let at = id;
    for (let up = above.get(at); up !== undefined && up !== at; up = above.get(at)) {
      above.set(at, above.get(up)!);
      at = up;
    }
    return at;
  };
  const latest = new Map<string, number>();
  const steps = (story?.steps ?? []).slice(0, Math.max(0, step));
  steps.forEach(({ joins, nodes }, k) => {
    const [first, ...others] = nodes;
    if (!joins || first === undefined) return;
    for (const id of nodes) if (!above.has(id)) above.set(id, id);
    const top = root(first);
    for (const id of others) above.set(root(id), top);
    latest.set(top, k + 1);
  });
  const groups = new Map<string, string[]>();
  for (const id of above.keys()) append(groups, root(id), id);
  return [...groups].flatMap(([top, nodes]) => {
    const at = latest.get(top)!;
    return nodes.length > 1 ? [{ nodes, step: at, text: steps[at - 1]!.decision.text }] : [];
  });
}

export const replayable = (story: BuildStory | null): boolean =>
  (story?.steps ?? []).some(({ joins }) => joins);

/** The pass that a step belongs to; -1 before the first step. */
export const passAt = ({ passes }: BuildStory, step: number): number =>
  passes.findLastIndex(({ first }) => first < step);

export const layersAfter = ({ before, after }: BuildPass): number | null => after ?? before;

/** The contest that is shown: the one picked, unless the selected layers have others. */
export function contestShown(
  contests: readonly Contest[],
  layers: readonly string[],
  picked: string,
): Contest | undefined {
  const selected = new Set(layers);
  const marked = contests.filter(({ id }) => id && selected.has(id));
  const among = marked.length ? marked : contests;
  return among.find(({ layer }) => layer === picked) ?? among[0];
}

export function marginWords(margin: number | null): string {
  if (margin === null || !Number.isFinite(margin)) return "";
  return margin < 1.005
    ? "as fast as the next"
    : `${margin.toFixed(margin < 10 ? 2 : 0)}× faster than the next`;
}

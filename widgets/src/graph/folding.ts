import type { Side } from "../core/contract";
import type { Study } from "../core/state";

const DEEPEST = 20;

export function foldAll(study: Study, side: Side, open: boolean): void {
  for (let depth = 0; depth < DEEPEST; depth++) {
    const visible = study.visible(side);
    const wrong = [...(visible?.foldable ?? [])].filter((v) => visible!.frames.has(v) !== open);
    if (!wrong.length) return;
    toggle(
      study,
      wrong.map((v) => visible!.graph.boxes[v]!.id),
    );
  }
}

/** Opens the groups around a box until the box itself is visible. */
export function unfold(study: Study, side: Side, id: string): void {
  for (let depth = 0; depth < DEEPEST; depth++) {
    const visible = study.visible(side);
    const at = visible?.place.get(id);
    const group = at === undefined ? id : visible!.graph.boxes[at]!.id;
    if (group === id) return;
    toggle(study, [group]);
  }
}

/** Folds the group that a box stands in, or opens the box itself where it is folded; tells the group's id. */
export function toggleAt(study: Study, side: Side, id: string): string | null {
  const visible = study.visible(side);
  const at = visible?.place.get(id);
  if (!visible || at === undefined) return null;
  const group = visible.foldable.has(at) ? at : visible.parent[at]!;
  if (group < 0) return null;
  const name = visible.graph.boxes[group]!.id;
  study.toggle(name);
  return name;
}

function toggle(study: Study, groups: readonly string[]): void {
  const folds = new Set(study.view.peek().folds);
  for (const id of groups) if (!folds.delete(id)) folds.add(id);
  study.change({ folds: [...folds] });
}

import type { Side } from "../core/contract";
import type { Study } from "../core/state";

const DEEPEST = 20;

export function foldAll(study: Study, side: Side, open: boolean): void {
  for (let depth = 0; depth < DEEPEST; depth++) {
    const drawn = study.drawn(side);
    const wrong = [...(drawn?.foldable ?? [])].filter((v) => drawn!.frames.has(v) !== open);
    if (!wrong.length) return;
    toggle(
      study,
      wrong.map((v) => drawn!.graph.boxes[v]!.id),
    );
  }
}

/** Opens the groups around a box until it is drawn itself. */
export function unfold(study: Study, side: Side, id: string): void {
  for (let depth = 0; depth < DEEPEST; depth++) {
    const drawn = study.drawn(side);
    const at = drawn?.place.get(id);
    const shown = at === undefined ? id : drawn!.graph.boxes[at]!.id;
    if (shown === id) return;
    toggle(study, [shown]);
  }
}

/** Folds the group that a box stands in, or opens the box itself where it is folded; tells the group's id. */
export function toggleAt(study: Study, side: Side, id: string): string | null {
  const drawn = study.drawn(side);
  const at = drawn?.place.get(id);
  if (!drawn || at === undefined) return null;
  const group = drawn.foldable.has(at) ? at : drawn.parent[at]!;
  if (group < 0) return null;
  const name = drawn.graph.boxes[group]!.id;
  study.toggle(name);
  return name;
}

function toggle(study: Study, groups: readonly string[]): void {
  const folds = new Set(study.view.peek().folds);
  for (const id of groups) if (!folds.delete(id)) folds.add(id);
  study.change({ folds: [...folds] });
}

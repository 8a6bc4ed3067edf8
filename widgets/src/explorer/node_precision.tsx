import type { Box, EngineView, Option } from "../core/contract";
import type { Mapping } from "../core/mapping";
import { Row, Section } from "../ui/section";
import { Select } from "../ui/select";
import { pinned, prunable, pruned, WHOLE } from "./choice";
import type { ExplorerState } from "./explorer_state";

const PRUNED =
  "Of each four weights the two smallest become zero, which tensor cores skip; it counts with the next build";

export function Pinning({ explorer, boxes }: { explorer: ExplorerState; boxes: readonly Box[] }) {
  const { study } = explorer;
  const { pins, precision, sparsity } = explorer.choice.value;
  const engine = study.engine.value;
  const precisions = new Set(
    boxes.map((box) => (engine ? computedIn(engine, study.mapping.value, box) : "")),
  );
  const [now, ...others] = precisions;
  const offered = explorer.controls.value.precisions.filter(({ id }) => id !== WHOLE);
  const pinnedTo = new Set(boxes.map(pinned(pins)));
  const heavy = boxes.filter(prunable);
  const sparse = heavy.filter(pruned(sparsity));
  if (!boxes.length || (explorer.saved && !now)) return null;
  const as: Option = {
    id: "",
    label: `as the variant${precision ? ` (${precision})` : ""}`,
    reason: "",
  };
  const mixed: Option = { id: "mixed", label: "several", reason: "They differ" };
  return (
    <Section title="Precision">
      {now && !others.length && (
        <dl>
          <Row name="runs in">
            <b>{now}</b>
          </Row>
        </dl>
      )}
      {!explorer.saved && (
        <div class="rt-pinning">
          <Select
            label={boxes.length > 1 ? "Precision of these nodes" : "Precision of this node"}
            help="A precision of their own, whatever the variant has; it counts with the next build."
            name="pin"
            options={[as, ...offered, ...(pinnedTo.size > 1 ? [mixed] : [])]}
            value={pinnedTo.size > 1 ? mixed.id : ([...pinnedTo][0] ?? "")}
            disabled={explorer.unusable()}
            onPick={(id) => explorer.pin(boxes, id)}
          />
          {heavy.length > 0 && (
            <label title={PRUNED}>
              <input
                type="checkbox"
                aria-description={PRUNED}
                data-control="prune"
                checked={sparse.length === heavy.length}
                indeterminate={sparse.length > 0 && sparse.length < heavy.length}
                disabled={explorer.unusable() !== ""}
                onChange={(event) => explorer.prune(heavy, event.currentTarget.checked)}
              />{" "}
              prune to 2:4{heavy.length > 1 ? ` (${heavy.length} nodes)` : ""}
            </label>
          )}
        </div>
      )}
    </Section>
  );
}

/** The precision in which an engine computes a node; the kernel lists those that are not fp32. */
function computedIn({ precisions }: EngineView, links: Mapping, { id, outputs }: Box): string {
  if (Object.hasOwn(precisions, id)) return precisions[id]!;
  const plain = outputs.every(({ dtype }) => dtype === "fp32") && links.pairsOfNode(id).length > 0;
  return plain && Object.keys(precisions).length ? "fp32" : "";
}

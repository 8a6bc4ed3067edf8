import { type PanelName, TABS } from "../core/contract";
import type { ExplorerState } from "./explorer_state";

const WHY: PanelName = "diagnosis";
const FIRST = "operator";
const EFFECT = "effect";

/** Shows a variant and opens the panel that tells where its accuracy went; the kernel looks where nobody did before. */
export function askAccuracy(explorer: ExplorerState, variant: string): void {
  const { engine, view } = explorer.study;
  const { name } = TABS.find(({ panels }) => (panels as readonly string[]).includes(WHY))!;
  if (engine.peek()?.variant !== variant) explorer.send({ type: "show", variant });
  const { settings, colour_nodes } = view.peek();
  explorer.study.change({
    tab: name,
    settings: { ...settings, [name]: WHY },
    colour_nodes: colour_nodes === FIRST ? EFFECT : colour_nodes,
  });
  explorer.send({ type: "work", work: "diagnose", variant, values: { unless: "known" } });
}

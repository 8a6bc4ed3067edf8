import { type PanelName, TABS } from "./contract";
import type { ExplorerState } from "./explorerstate";

const WHY: PanelName = "diagnosis";

/** Shows a variant and opens the panel that tells where its accuracy went; the kernel looks where nobody did before. */
export function askAccuracy(explorer: ExplorerState, variant: string): void {
  const { engine, view } = explorer.study;
  const { name } = TABS.find(({ panels }) => (panels as readonly string[]).includes(WHY))!;
  if (engine.peek()?.variant !== variant) explorer.send({ type: "show", variant });
  explorer.study.change({ tab: name, settings: { ...view.peek().settings, [name]: WHY } });
  explorer.send({ type: "work", work: "diagnose", variant, values: { unless: "known" } });
}

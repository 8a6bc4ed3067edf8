import { type PanelName, type Side, TABS } from "../core/contract";
import type { ExplorerState } from "./explorer_state";

const WHY: PanelName = "why";

/** A question about a fusion: what its button is called, what the panel shows, and what the kernel is given. */
export interface FusionQuestion {
  label: string;
  pair: string;
  values: Record<string, string>;
}

/** What can be asked about what is selected: two nodes, or a layer of several; null where nothing can. */
export function fusionOf({ study, saved }: ExplorerState, side: Side): FusionQuestion | null {
  const engine = study.engine.value;
  const links = study.mapping.value;
  if (saved || !engine?.panels.includes(WHY)) return null;
  const step = (layer: string): FusionQuestion => ({
    label: "Why is this one layer?",
    pair: `layer ${layer}`,
    values: { layer },
  });
  if (side === "layer") {
    const [only, ...more] = study.selected("layer");
    return only !== undefined && !more.length && links.nodesRun(only).length > 1 ? step(only) : null;
  }
  const boxes = study.source.value?.boxes ?? [];
  const selected = new Set(side === "node" ? study.selected("node") : []);
  // In the graph's order, in which the one that writes comes first.
  const nodes = boxes.filter(({ id, kind }) => kind === "node" && selected.has(id)).map(({ id }) => id);
  const [first, second, ...more] = nodes;
  if (first === undefined || second === undefined || more.length) return null;
  const [one, other] = [first, second].map((id) =>
    links.layersOf([id]).filter((layer) => links.nodesRun(layer).includes(id)),
  );
  const shared = one!.find((layer) => other!.includes(layer));
  if (shared !== undefined) return step(shared);
  return { label: "Why is this not one layer?", pair: `${first} | ${second}`, values: { first, second } };
}

/** Opens the panel with a question, and starts its experiment unless the answer is known. */
export function askFusion(explorer: ExplorerState, { pair, values }: FusionQuestion): void {
  const { engine, view } = explorer.study;
  const { name } = TABS.find(({ panels }) => (panels as readonly string[]).includes(WHY))!;
  explorer.study.change({
    tab: name,
    settings: { ...view.peek().settings, [name]: WHY, [`${WHY}.pair`]: pair },
  });
  const variant = engine.peek()!.variant;
  explorer.send({ type: "work", work: "why", variant, values: { ...values, unless: "known" } });
}

const DIAGNOSIS: PanelName = "diagnosis";
const FIRST = "operator";
const OWN_ERROR = "own_error";

/** Shows a variant and opens the panel with the causes of its loss of accuracy, which the kernel measures unless it has them. */
export function askAccuracy(explorer: ExplorerState, variant: string): void {
  const { engine, view } = explorer.study;
  const { name } = TABS.find(({ panels }) => (panels as readonly string[]).includes(DIAGNOSIS))!;
  if (engine.peek()?.variant !== variant) explorer.send({ type: "show", variant });
  const { settings, colour_nodes } = view.peek();
  explorer.study.change({
    tab: name,
    settings: { ...settings, [name]: DIAGNOSIS },
    colour_nodes: colour_nodes === FIRST ? OWN_ERROR : colour_nodes,
  });
  explorer.send({ type: "work", work: "diagnose", variant, values: { unless: "known" } });
}

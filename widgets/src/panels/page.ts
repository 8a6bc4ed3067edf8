import {
  type Link,
  PANELS,
  type Panel,
  type PanelName,
  TABS,
  type Tab,
  type ViewState,
} from "../core/contract";
import { append } from "../core/multimap";

const DRAWN = {
  layers: ["Layers", "What each layer takes, or is estimated to take: a bar for each."],
  errors: ["Errors", "How far what each layer writes lies from the same in fp32."],
} as const;
export type Segment = PanelName | keyof typeof DRAWN;

export const drawnHere = (name: Segment): name is keyof typeof DRAWN => name in DRAWN;
export const segmentLabel = (name: Segment): string => (drawnHere(name) ? DRAWN[name][0] : PANELS[name][0]);
export const segmentTold = (name: Segment): string => (drawnHere(name) ? DRAWN[name][1] : PANELS[name][1]);

export interface Declared {
  label: string;
  told: string;
  /** The file in `tabs/` that draws it. */
  part: (typeof TABS)[number]["part"];
  panels: readonly Segment[];
}

export const declared = (name: Tab): Declared => TABS.find((tab) => tab.name === name)!;

export interface PageInputs {
  offered: readonly PanelName[];
  narrow: boolean;
  live: boolean;
  calibrated: boolean;
}

/** The bottom of the Explorer: the tabs, the open one, empty while all are folded, and which of its panels. */
export interface Page {
  tabs: Tab[];
  tab: Tab | "";
  segments: Segment[];
  segment: Segment | null;
}

export function pageOf({ tab, settings }: Pick<ViewState, "tab" | "settings">, stock: PageInputs): Page {
  const { offered, narrow, live, calibrated } = stock;
  const segmentsOf = (name: Tab): Segment[] => {
    const segments = declared(name).panels.filter(
      (one) => drawnHere(one) || (offered.includes(one) && !(one === "accuracy" && live)),
    );
    return narrow || segments.some((one) => one !== "errors") ? segments : [];
  };
  const available = (name: Tab): boolean => {
    if (name === "calibration") return live || calibrated;
    return !declared(name).panels.length || segmentsOf(name).length > 0;
  };
  const tabs = TABS.map(({ name }) => name).filter(available);
  if (!tab) return { tabs, tab, segments: [], segment: null };
  const current = tabs.includes(tab) ? tab : tabs[0]!;
  const segments = segmentsOf(current);
  return {
    tabs,
    tab: current,
    segments,
    segment: segments.find((one) => one === settings[current]) ?? segments[0] ?? null,
  };
}

export function chosenIn(panel: PanelName, settings: ViewState["settings"]): Record<string, string> {
  const start = `${panel}.`;
  return Object.fromEntries(
    Object.entries(settings).flatMap(([key, value]) =>
      key.startsWith(start) ? [[key.slice(start.length), value]] : [],
    ),
  );
}

/** An answer that is only a problem keeps the title and the settings of the last one, so that it can be put right. */
export function carried(before: Panel | undefined, answer: Panel): Panel {
  if (!before || !answer.problem || answer.settings.length) return answer;
  const { settings, title, lead } = before;
  return { ...answer, settings, title: answer.title || title, lead: answer.lead || lead };
}

export class LinkIndex {
  readonly #nodes = new Map<string, string[]>();
  readonly #layers = new Map<string, string[]>();
  readonly #others = new Map<string, string[]>();

  constructor(links: Record<string, Link>) {
    for (const [key, { nodes, layers, others }] of Object.entries(links)) {
      // Where a point names layers these decide: a node may be in several of them.
      if (!layers.length) for (const id of nodes) append(this.#nodes, id, key);
      for (const id of layers) append(this.#layers, id, key);
      for (const id of others) append(this.#others, id, key);
    }
  }

  /** Keys of what meets a selection. */
  keys({ nodes, layers, others }: Link): Set<string> {
    const keys = new Set<string>();
    for (const [ids, from] of [
      [nodes, this.#nodes],
      [layers, this.#layers],
      [others, this.#others],
    ] as const)
      for (const id of ids) for (const key of from.get(id) ?? []) keys.add(key);
    return keys;
  }
}

/**
 * The link as the panes at hand can follow it: a panel that was asked to compare with another variant than that of the
 * third pane tells layers of that one, which mean nothing here.
 */
export function usable({ others, ...rest }: Link, { settings }: Panel, compared: string): Link {
  const from = settings.find(({ key }) => key === "from")?.value;
  return { ...rest, others: from === undefined || from === compared ? others : [] };
}

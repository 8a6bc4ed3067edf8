import { type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { TABS } from "../core/contract";
import type { Surroundings } from "../core/parts";
import type { Declared } from "../panels/page";

export type TabPart = Exclude<Declared["part"], "">;

export const TAB_PARTS: ReadonlySet<TabPart> = new Set(TABS.flatMap(({ part }) => part || []));

export interface LoadedTab {
  View?: ComponentType<object>;
  css: string;
  problem: string;
}

export class LazyTabs {
  readonly #part: Surroundings["part"];
  readonly #loaded = new Map<TabPart, Signal<LoadedTab | null>>();
  readonly #requested = new Set<TabPart>();

  constructor(part: Surroundings["part"]) {
    this.#part = part;
  }

  of(name: TabPart): ReadonlySignal<LoadedTab | null> {
    return this.#of(name);
  }

  /** Asks for a tab that has not come, again when `anew`: what was asked of a kernel that went away is forgotten. */
  ask(name: TabPart, anew = false): void {
    const tab = this.#of(name);
    if (tab.peek()?.View || (this.#requested.has(name) && !anew)) return;
    this.#requested.add(name);
    this.#part(`tab-${name}.js`).then(
      ({ default: View, css }) => {
        tab.value = { View: View as ComponentType<object>, css, problem: "" };
      },
      (error: unknown) => {
        tab.value = { css: "", problem: String(error) };
        this.#requested.delete(name);
      },
    );
  }

  #of(name: TabPart): Signal<LoadedTab | null> {
    const tab = this.#loaded.get(name) ?? signal(null);
    this.#loaded.set(name, tab);
    return tab;
  }
}

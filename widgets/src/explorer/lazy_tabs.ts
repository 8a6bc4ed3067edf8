import { type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { TABS } from "../core/contract";
import type { Surroundings } from "../core/parts";
import type { Declared } from "../panels/page";

export type TabPart = Exclude<Declared["part"], "">;

export const TAB_PARTS: ReadonlySet<TabPart> = new Set(TABS.flatMap(({ part }) => part || []));

/** A tab that has come, with its style; or why it could not be run. */
export interface LoadedTab {
  View?: ComponentType<object>;
  css: string;
  problem: string;
}

export class LazyTabs {
  readonly #part: Surroundings["part"];
  readonly #come = new Map<TabPart, Signal<LoadedTab | null>>();
  readonly #asked = new Set<TabPart>();

  constructor(part: Surroundings["part"]) {
    this.#part = part;
  }

  /** What has come of a tab; null while it is on its way. */
  of(name: TabPart): ReadonlySignal<LoadedTab | null> {
    return this.#of(name);
  }

  /** Asks for a tab that has not come, again when `anew`: what was asked of a kernel that went away is forgotten. */
  ask(name: TabPart, anew = false): void {
    const come = this.#of(name);
    if (come.peek()?.View || (this.#asked.has(name) && !anew)) return;
    this.#asked.add(name);
    this.#part(`tab-${name}.js`).then(
      ({ default: View, css }) => {
        come.value = { View: View as ComponentType<object>, css, problem: "" };
      },
      (error: unknown) => {
        come.value = { css: "", problem: String(error) };
        this.#asked.delete(name);
      },
    );
  }

  #of(name: TabPart): Signal<LoadedTab | null> {
    const known = this.#come.get(name) ?? signal(null);
    this.#come.set(name, known);
    return known;
  }
}

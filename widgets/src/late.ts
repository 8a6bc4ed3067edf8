import { type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { TABS } from "./contract";
import type { Declared } from "./panels";
import type { Surroundings } from "./parts";

/** A file in `tabs/`, by what it is called there. */
export type LateTab = Exclude<Declared["part"], "">;

/** The parts that there are, each once. */
export const LATE_TABS: ReadonlySet<LateTab> = new Set(TABS.flatMap(({ part }) => part || []));

/** A tab that has come, with its style; or why it could not be run. */
export interface Come {
  View?: ComponentType<object>;
  css: string;
  problem: string;
}

/** The code of tabs, each once. */
export class Late {
  readonly #part: Surroundings["part"];
  readonly #come = new Map<LateTab, Signal<Come | null>>();
  readonly #asked = new Set<LateTab>();

  constructor(part: Surroundings["part"]) {
    this.#part = part;
  }

  /** What has come of a tab; null while it is on its way. */
  of(name: LateTab): ReadonlySignal<Come | null> {
    return this.#of(name);
  }

  /** Asks for a tab that has not come, again when `anew`: what was asked of a kernel that went away is forgotten. */
  ask(name: LateTab, anew = false): void {
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

  #of(name: LateTab): Signal<Come | null> {
    const known = this.#come.get(name) ?? signal(null);
    this.#come.set(name, known);
    return known;
  }
}

/** What a part gives: the names of its entry, what other parts use of its files, and its style. */
export interface Exports {
  css: string;
  [name: string]: unknown;
}

export type Factory = (module: { exports: Exports }, require: (id: string) => unknown) => void;

/**
 * The parts of the page's code that have arrived, by the names of their scripts. Each runs once, when it is first
 * needed, so that all widgets of a page and all tabs of a widget share one copy of what they have in common.
 */
export class Parts {
  readonly #factories = new Map<string, Factory>();
  readonly #exports = new Map<string, Exports>();

  add(name: string, factory: Factory): void {
    this.#factories.set(name, factory);
  }

  run(name: string): Exports {
    const exports = this.#exports.get(name);
    if (exports) return exports;
    const factory = this.#factories.get(name);
    if (!factory) throw new Error(`"${name}" has not arrived`);
    const module = { exports: { css: "" } };
    factory(module, (id) => this.#inner(id));
    this.#exports.set(name, module.exports);
    return module.exports;
  }

  /** A file of another part, as the bundler names it: `part.js:file`. */
  #inner(id: string): unknown {
    const [name, file] = id.split(":") as [string, string];
    return this.run(name)[file];
  }
}

/** What draws a widget is given beside the model: its style, and the way to what comes later. */
export interface Surroundings {
  css: string;
  /** A part that is not there from the start; the kernel is asked with every call until it comes. */
  part(name: string): Promise<Exports>;
}

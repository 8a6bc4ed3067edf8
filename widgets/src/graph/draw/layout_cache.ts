import type { Mapping } from "../../core/mapping";
import type { LayoutClient } from "../layout/client";
import type { LayoutOutput } from "../layout/types";
import type { Drawn } from "../visible_graph";
import { type Figure, figures, signed } from "./measure";
import { layoutInput } from "./scene";
import type { Type } from "./text";

/** The figures of a graph, and where they stand once somebody asks. */
interface Placed {
  drawn: Drawn;
  type: Type;
  across: boolean;
  figures: Figure[];
  output(): Promise<LayoutOutput>;
}

/** Measures the boxes of one pane and has them laid out, once while only the engine beside them changes. */
export class Placing {
  readonly #layouts: Pick<LayoutClient, "layout">;
  #last: Placed | null = null;

  constructor(layouts: Pick<LayoutClient, "layout">) {
    this.#layouts = layouts;
  }

  of(drawn: Drawn, links: Mapping, type: Type, across: boolean): Placed {
    const last = this.#last;
    const known = last?.drawn === drawn && last.type === type && last.across === across ? last : null;
    const made = known ? signed(known.figures, drawn, links, type) : figures(drawn, links, type);
    let asked: Promise<LayoutOutput> | null = null;
    const ask = (): Promise<LayoutOutput> => {
      asked ??= this.#layouts.layout(layoutInput(drawn, made, across, type));
      return asked;
    };
    this.#last = { drawn, type, across, figures: made, output: known?.output ?? ask };
    return this.#last;
  }

  forget(): void {
    this.#last = null;
  }
}

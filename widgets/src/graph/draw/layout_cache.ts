import type { Mapping } from "../../core/mapping";
import type { LayoutClient } from "../layout/client";
import type { LayoutOutput } from "../layout/types";
import type { VisibleGraph } from "../visible_graph";
import { type Figure, figures, updateReasons } from "./measure";
import { layoutInput } from "./scene";
import type { Type } from "./text";

interface Placed {
  visible: VisibleGraph;
  type: Type;
  across: boolean;
  figures: Figure[];
  output(): Promise<LayoutOutput>;
}

/** Measures the boxes of one pane and has them laid out, once while only the engine beside them changes. */
export class LayoutCache {
  readonly #layouts: Pick<LayoutClient, "layout">;
  #last: Placed | null = null;

  constructor(layouts: Pick<LayoutClient, "layout">) {
    this.#layouts = layouts;
  }

  of(visible: VisibleGraph, links: Mapping, type: Type, across: boolean): Placed {
    const last = this.#last;
    const cached = last?.visible === visible && last.type === type && last.across === across ? last : null;
    const measured = cached
      ? updateReasons(cached.figures, visible, links, type)
      : figures(visible, links, type);
    let layout: Promise<LayoutOutput> | null = null;
    const ask = (): Promise<LayoutOutput> => {
      layout ??= this.#layouts.layout(layoutInput(visible, measured, across, type));
      return layout;
    };
    this.#last = { visible, type, across, figures: measured, output: cached?.output ?? ask };
    return this.#last;
  }

  forget(): void {
    this.#last = null;
  }
}

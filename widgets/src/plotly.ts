import type { Host } from "@anywidget/types";
import type { Figure } from "./traits";

/** What plotly adds to the element that it draws in. */
export interface Plot extends HTMLElement {
  on(name: "plotly_click" | "plotly_hover", listener: (event: { points: { id?: string }[] }) => void): void;
  on(name: "plotly_unhover" | "plotly_afterplot", listener: () => void): void;
}

/** The part of plotly that is used here. */
export interface Plotly {
  react(
    place: HTMLElement,
    data: Figure["data"],
    layout: Figure["layout"],
    config: Record<string, unknown>,
  ): Promise<Plot>;
  purge(place: HTMLElement): void;
}

/** anywidget gives a widget two seconds to start, and plotly is large: a busy machine may need a second try. */
const TRIES = 3;

/** Takes plotly from the widget that brings it. */
export async function loadPlotly(
  host: Host | undefined,
  ref: string | null,
  end: AbortSignal,
): Promise<Plotly> {
  if (!host || !ref) throw new Error("Charts need anywidget 0.11 or newer in this notebook server.");
  for (let left = TRIES; ; left -= 1) {
    try {
      const widget = await host.getWidget(ref);
      const el = Object.assign(document.createElement("div"), { plotly: null as Plotly | null });
      await widget.render({ el, signal: end });
      if (!el.plotly) throw new Error("The widget that brings plotly did not hand it over.");
      return el.plotly;
    } catch (error) {
      if (left <= 1 || end.aborted) throw error;
    }
  }
}

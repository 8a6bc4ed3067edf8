import type { AnyModel } from "@anywidget/types";
import { effect } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Lab } from "../lab";

/** The parts of plotly's FigureWidget that are set here, in the browser only: the kernel's figure stays as it is. */
interface FigureTraits {
  _config: Record<string, unknown>;
  _widget_layout: Record<string, unknown>;
  _widget_data: { ids?: string[] }[];
  _py2js_relayout: { relayout_data: Record<string, unknown> } | null;
  _py2js_restyle: { restyle_data: Record<string, unknown>; restyle_traces: number[] } | null;
}

/** What plotly adds to the element that it draws in. */
interface Plot extends HTMLElement {
  on(name: "plotly_click" | "plotly_hover", listener: (event: { points: { id?: string }[] }) => void): void;
  on(name: "plotly_unhover", listener: () => void): void;
}

/** Bars and points that nothing has marked. */
const PLAIN = { light: "#31688e", dark: "#7aa9d0" };

/** A plotly FigureWidget of the kernel as a child of this widget; it takes the size of its place. */
export function Chart({ lab, name, hidden }: { lab: Lab; name: string; hidden: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const [problem, setProblem] = useState("");
  // ipywidgets and anywidget write references to child widgets differently; the host reads anywidget's.
  const ref = lab.charts.value[name]?.replace(/^IPY_MODEL_/, "anywidget:");

  useEffect(() => {
    if (!ref || !lab.host || hidden) return;
    const el = box.current!;
    const end = new AbortController();
    setProblem("");
    mount(lab, lab.host, ref, el, end.signal).catch((error: unknown) => {
      if (!end.signal.aborted) setProblem(String(error instanceof Error ? error.message : error));
    });
    return () => {
      end.abort();
      el.replaceChildren();
    };
  }, [ref, hidden]);

  return (
    <div class="rt-chart" data-chart={name} hidden={hidden}>
      <div ref={box} />
      {!ref && <p class="rt-quiet">A chart appears here after the first build.</p>}
      {ref && !lab.host && (
        <p class="rt-quiet">Charts need anywidget 0.11 or newer in this notebook server.</p>
      )}
      {problem && <p class="rt-worse">The chart could not be shown: {problem}</p>}
    </div>
  );
}

async function mount(
  lab: Lab,
  host: NonNullable<Lab["host"]>,
  ref: string,
  el: HTMLElement,
  end: AbortSignal,
): Promise<void> {
  const figure: AnyModel<FigureTraits> = await host.getModel<FigureTraits>(ref);
  const widget = await host.getWidget(ref);
  if (end.aborted) return;
  const size = (): Record<string, number> => ({ width: el.clientWidth, height: el.clientHeight });
  // plotly draws from copies of these, so that they must be right before it starts.
  figure.set("_config", { ...figure.get("_config"), displayModeBar: false });
  Object.assign(figure.get("_widget_layout"), size());
  const view = el.appendChild(document.createElement("div"));
  // plotly cannot change what it has not drawn yet.
  const drawn = (event: Event): void => {
    if (event instanceof CustomEvent && event.detail.element === view)
      link(lab, figure, el, view as unknown as Plot, end);
  };
  document.addEventListener("plotlywidget-after-render", drawn, { signal: end });
  await widget.render({ el: view, signal: end });
}

/** Joins a drawn figure to the rest: size, theme, selection and hover. Its points' ids are layer ids. */
function link(lab: Lab, figure: AnyModel<FigureTraits>, el: HTMLElement, plot: Plot, end: AbortSignal): void {
  const { study, bench } = lab;
  const relayout = (data: Record<string, unknown>): void => {
    figure.set("_py2js_relayout", { relayout_data: data });
    figure.set("_py2js_relayout", null);
  };
  let frame = 0;
  const resize = new ResizeObserver(() => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => {
      if (el.clientWidth && el.clientHeight) relayout({ width: el.clientWidth, height: el.clientHeight });
    });
  });
  resize.observe(el);
  const ids = figure.get("_widget_data")[0]?.ids ?? [];
  const stops = [
    effect(() => {
      const { ink, font } = bench.theme.value;
      relayout({ "font.color": ink, "font.family": font });
    }),
    effect(() => {
      const { dark, select, hover } = bench.theme.value;
      const selected = new Set(study.view.value.layers);
      const hovered = new Set(study.hovered("layer"));
      const plain = dark ? PLAIN.dark : PLAIN.light;
      const colours = ids.map((id) => (selected.has(id) ? select : hovered.has(id) ? hover : plain));
      if (!colours.length) return;
      figure.set("_py2js_restyle", { restyle_data: { "marker.color": [colours] }, restyle_traces: [0] });
      figure.set("_py2js_restyle", null);
    }),
  ];
  plot.on("plotly_click", ({ points }) => {
    if (points[0]?.id) study.select("layer", points[0].id, { reveal: true });
  });
  plot.on("plotly_hover", ({ points }) => {
    if (points[0]?.id) study.point("layer", points[0].id);
  });
  plot.on("plotly_unhover", () => study.point());
  end.addEventListener("abort", () => {
    for (const stop of stops) stop();
    resize.disconnect();
    cancelAnimationFrame(frame);
  });
}

import type { AnyModel } from "@anywidget/types";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Lab } from "../lab";

/** The parts of plotly's FigureWidget that are set here, in the browser only: the kernel's figure stays as it is. */
interface FigureTraits {
  _config: Record<string, unknown>;
  _widget_layout: Record<string, unknown>;
  _py2js_relayout: { relayout_data: Record<string, unknown> } | null;
}

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
    mount(lab.host, ref, el, end.signal).catch((error: unknown) => {
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
  let frame = 0;
  const resize = new ResizeObserver(() => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => {
      if (!el.clientWidth || !el.clientHeight) return;
      figure.set("_py2js_relayout", { relayout_data: size() });
      figure.set("_py2js_relayout", null);
    });
  });
  // plotly cannot change a layout before it has drawn the first one.
  const drawn = (event: Event): void => {
    if (event instanceof CustomEvent && event.detail.element === view) resize.observe(el);
  };
  document.addEventListener("plotlywidget-after-render", drawn, { signal: end });
  end.addEventListener("abort", () => {
    resize.disconnect();
    cancelAnimationFrame(frame);
  });
  await widget.render({ el: view, signal: end });
}

import type { AnyModel } from "@anywidget/types";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Theme } from "../draw/theme";
import type { Lab } from "../lab";

/** The parts of plotly's FigureWidget that are set here: never synced, so that the kernel's figure stays as it is. */
interface FigureTraits {
  _config: Record<string, unknown>;
  _widget_layout: Record<string, unknown>;
  _py2js_relayout: { relayout_data: Record<string, unknown> } | null;
}

/** A plotly FigureWidget of the kernel as a child of this widget; it takes this widget's size and colours. */
export function Chart({ lab, name, hidden }: { lab: Lab; name: string; hidden: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const [problem, setProblem] = useState("");
  // ipywidgets and anywidget write references to child widgets differently; the host reads anywidget's.
  const ref = lab.charts.value[name]?.replace(/^IPY_MODEL_/, "anywidget:");

  useEffect(() => {
    if (!ref || !lab.host || hidden) return;
    const el = box.current!;
    const end = new AbortController();
    let figure: AnyModel<FigureTraits> | null = null;
    let frame = 0;
    const dress = (): void => {
      if (!figure || !el.clientWidth || !el.clientHeight) return;
      const data = { ...colours(lab.bench.theme.peek()), width: el.clientWidth, height: el.clientHeight };
      figure.set("_py2js_relayout", { relayout_data: data });
      figure.set("_py2js_relayout", null);
    };
    const later = (): void => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(dress);
    };
    const observer = new ResizeObserver(later);
    const unfollow = lab.bench.theme.subscribe(later);
    const mount = async (host: NonNullable<Lab["host"]>): Promise<void> => {
      const model = await host.getModel<FigureTraits>(ref);
      const widget = await host.getWidget(ref);
      if (end.signal.aborted) return;
      // The figure is drawn from copies of these, so that they must be right before it is.
      model.set("_config", { ...model.get("_config"), displayModeBar: false, displaylogo: false });
      Object.assign(model.get("_widget_layout"), { width: el.clientWidth, height: el.clientHeight });
      const view = el.appendChild(document.createElement("div"));
      await widget.render({ el: view, signal: end.signal });
      figure = model;
      dress();
      observer.observe(el);
    };
    setProblem("");
    mount(lab.host).catch((error: unknown) => {
      if (!end.signal.aborted) setProblem(String(error instanceof Error ? error.message : error));
    });
    return () => {
      end.abort();
      observer.disconnect();
      unfollow();
      cancelAnimationFrame(frame);
      el.replaceChildren();
    };
  }, [ref, hidden]);

  return (
    <div class="rt-chart" data-chart={name} hidden={hidden}>
      <div ref={box} />
      {!ref && <p class="rt-quiet">A chart appears here after the first build.</p>}
      {problem && <p class="rt-worse">The chart could not be shown: {problem}</p>}
    </div>
  );
}

/** plotly does not follow Jupyter's theme by itself. */
function colours(theme: Theme): Record<string, unknown> {
  const axis = (name: string): Record<string, string> => ({
    [`${name}.gridcolor`]: theme.tag,
    [`${name}.linecolor`]: theme.line,
    [`${name}.zerolinecolor`]: theme.line,
  });
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    "font.color": theme.ink,
    "font.family": theme.font,
    ...axis("xaxis"),
    ...axis("yaxis"),
  };
}

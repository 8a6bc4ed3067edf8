import type { AnyModel } from "@anywidget/types";
import { effect } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Lab } from "../lab";

/** The parts of plotly's FigureWidget that are used here. */
interface FigureTraits {
  _config: Record<string, unknown>;
  _widget_layout: Record<string, unknown>;
  _widget_data: { ids?: string[] }[];
}

/** What plotly adds to the element that it draws in. */
interface Plot extends HTMLElement {
  on(name: "plotly_click" | "plotly_hover", listener: (event: { points: { id?: string }[] }) => void): void;
  on(name: "plotly_unhover" | "plotly_afterplot", listener: () => void): void;
}

/**
 * A plotly FigureWidget of the kernel as a child of this widget. One that was shown stays in the page, hidden: a
 * figure's model goes on calling its views, and plotly fails in a view that has been taken down.
 */
export function Chart({ lab, name, hidden }: { lab: Lab; name: string; hidden: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const [problem, setProblem] = useState("");
  // ipywidgets and anywidget write references to child widgets differently; the host reads anywidget's.
  const ref = lab.charts.value[name]?.replace(/^IPY_MODEL_/, "anywidget:");

  useEffect(() => {
    if (!ref || !lab.host || hidden) return;
    const el = box.current!;
    let place = [...el.children].find((child) => child instanceof HTMLElement && child.dataset.ref === ref);
    const known = place !== undefined;
    place ??= Object.assign(document.createElement("div"), { className: "rt-plot" });
    el.prepend(place);
    for (const child of el.children) child.toggleAttribute("hidden", child !== place);
    setProblem("");
    if (known) fitPlots();
    else {
      (place as HTMLElement).dataset.ref = ref;
      mount(lab, lab.host, ref, place as HTMLElement).catch((error: unknown) => {
        if (!lab.end.aborted) setProblem(String(error instanceof Error ? error.message : error));
      });
    }
  }, [ref, hidden]);

  useEffect(() => {
    let frame = 0;
    const resize = new ResizeObserver(() => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(fitPlots);
    });
    resize.observe(box.current!);
    return () => {
      resize.disconnect();
      cancelAnimationFrame(frame);
    };
  }, []);

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

/** A responsive plotly figure takes the size of its element when the window tells a resize. */
const fitPlots = (): void => void window.dispatchEvent(new Event("resize"));

async function mount(
  lab: Lab,
  host: NonNullable<Lab["host"]>,
  ref: string,
  place: HTMLElement,
): Promise<void> {
  const figure = await host.getModel<FigureTraits>(ref);
  const widget = await host.getWidget(ref);
  if (lab.end.aborted) return;
  // plotly draws from copies of these, so that they must be right before it starts.
  figure.set("_config", { ...figure.get("_config"), displayModeBar: false, responsive: true });
  Object.assign(figure.get("_widget_layout"), { width: place.clientWidth, height: place.clientHeight });
  const drawn = (event: Event): void => {
    if (event instanceof CustomEvent && event.detail.element === place) link(lab, figure, place as Plot);
  };
  document.addEventListener("plotlywidget-after-render", drawn, { signal: lab.end });
  await widget.render({ el: place, signal: lab.end });
}

/** Joins a drawn figure to the selection and the hover. Its points' ids are layer ids. */
function link({ study, end }: Lab, figure: AnyModel<FigureTraits>, plot: Plot): void {
  const ids = figure.get("_widget_data")[0]?.ids ?? [];
  // In the picture alone: plotly's own restyling would go to the kernel and come back late.
  const mark = (): void => {
    const selected = new Set(study.view.value.layers);
    const hovered = new Set(study.hovered("layer"));
    const points = plot.querySelectorAll(".points .point");
    if (points.length !== ids.length) return;
    points.forEach((point, k) => {
      point.classList.toggle("rt-marked", selected.has(ids[k]!));
      point.classList.toggle("rt-pointed", hovered.has(ids[k]!));
    });
  };
  end.addEventListener("abort", effect(mark));
  plot.on("plotly_afterplot", mark);
  plot.on("plotly_click", ({ points }) => {
    if (points[0]?.id) study.select("layer", points[0].id, { reveal: true });
  });
  plot.on("plotly_hover", ({ points }) => {
    if (points[0]?.id) study.point("layer", points[0].id);
  });
  plot.on("plotly_unhover", () => study.point());
}

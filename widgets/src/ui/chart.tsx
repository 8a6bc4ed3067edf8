import { effect } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Lab } from "../lab";
import type { Plot, Plotly } from "../plotly";

/** A plotly figure of the variant shown, joined to the selection and the hover. */
export function Chart({ lab, name, hidden }: { lab: Lab; name: string; hidden: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const [plotly, setPlotly] = useState<Plotly | null>(null);
  const [problem, setProblem] = useState("");
  // Charts of a model that is no longer on screen are gone with its engine.
  const figure = lab.study.engine.value ? lab.charts.value[name] : undefined;
  const wanted = figure !== undefined && !hidden;

  useEffect(() => {
    if (!wanted) return;
    lab.plotly().then(setPlotly, (error: unknown) => {
      if (!lab.end.aborted) setProblem(error instanceof Error ? error.message : String(error));
    });
  }, [wanted]);

  useEffect(() => {
    const place = box.current!;
    if (!plotly || !figure || hidden) return;
    let frame = 0;
    let linked = place.classList.contains("js-plotly-plot");
    const draw = (): void => {
      if (!place.clientWidth || !place.clientHeight) return;
      const layout = { ...figure.layout, width: place.clientWidth, height: place.clientHeight };
      plotly
        .react(place, figure.data, layout, { displayModeBar: false })
        .then((plot) => {
          if (!linked) link(lab, plot, () => lab.charts.value[name]?.data[0]?.ids ?? []);
          linked = true;
        })
        .catch((error: unknown) => setProblem(String(error)));
    };
    draw();
    const resize = new ResizeObserver(() => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(draw);
    });
    resize.observe(place);
    return () => {
      resize.disconnect();
      cancelAnimationFrame(frame);
    };
  }, [plotly, figure, hidden]);

  useEffect(() => {
    const place = box.current!;
    return () => plotly?.purge(place);
  }, [plotly]);

  return (
    <div class="rt-chart" data-chart={name} hidden={hidden}>
      <div class="rt-plot" ref={box} hidden={!figure} />
      {!figure && <p class="rt-quiet">A chart appears here after the first build.</p>}
      {problem && <p class="rt-worse">The chart could not be shown: {problem}</p>}
    </div>
  );
}

/** Joins a plot to the selection and the hover. `ids` are the layers of its points, in order. */
function link({ study, end }: Lab, plot: Plot, ids: () => string[]): void {
  const mark = (): void => {
    const selected = new Set(study.view.value.layers);
    const hovered = new Set(study.hovered("layer"));
    const layers = ids();
    const points = plot.querySelectorAll(".points .point");
    if (points.length !== layers.length) return;
    points.forEach((point, k) => {
      point.classList.toggle("rt-marked", selected.has(layers[k]!));
      point.classList.toggle("rt-pointed", hovered.has(layers[k]!));
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

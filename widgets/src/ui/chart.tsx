import { effect } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Plotted } from "../core/channel";
import { isGone } from "../core/connection";
import { shorten } from "../core/format";
import { append } from "../core/multimap";
import type { Plot, Plotly, Trace } from "../core/plotly";
import type { ExplorerState } from "../explorer/explorer_state";
import { LARGER } from "../explorer/presentation";
import { onGround } from "../graph/colour";
import type { Theme } from "../graph/draw/theme";

/** How the points of a figure, by their ids, are joined to the selection and the hover. */
export interface Joint {
  marked(): ReadonlySet<string>;
  pointed(): ReadonlySet<string>;
  pick(id: string, add: boolean): void;
  point(id: string | null): void;
}

interface Props {
  explorer: ExplorerState;
  name: string;
  label: string;
  figure: Plotted | undefined;
  joint: Joint;
  hidden?: boolean;
  /** What it likes best, in pixels; it fits what place there is, unless that is far too low. */
  height?: number;
  children?: ComponentChildren;
}

export function Chart({ explorer, name, label, figure, joint, hidden = false, height, children }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const rings = useRef<SVGSVGElement>(null);
  const joined = useRef<(() => void) | null>(null);
  const latest = useRef(joint);
  latest.current = joint;
  const [plotly, setPlotly] = useState<Plotly | null>(null);
  const [problem, setProblem] = useState("");
  const theme = explorer.paneSet.theme.value;
  const large = explorer.presentation.on.value;
  const visible = figure !== undefined && !hidden;

  useEffect(() => {
    if (!visible) return;
    explorer.plotly().then(setPlotly, (error: unknown) => {
      if (!explorer.end.aborted) setProblem(error instanceof Error ? error.message : String(error));
    });
  }, [visible]);

  useEffect(() => {
    const place = box.current!;
    if (!plotly || !figure || hidden) return;
    let frame = 0;
    let gone = false;
    let drawnSize = "";
    let legend = 0;
    const draw = (): void => {
      const { clientWidth: width, clientHeight: height } = place;
      const size = `${width} ${height}`;
      if (!width || !height || size === drawnSize) return;
      drawnSize = size;
      const { data, layout } = themed(titled(figure, width, height), theme, large ? LARGER : 1);
      // In a low place the legend gives way to the points, whose names the pointer shows.
      const bare = legend > height * LEGEND;
      const room = { ...layout, width, height, ...(bare ? { showlegend: false } : {}) };
      plotly
        .react(place, data, room, { displayModeBar: false })
        .then((plot) => {
          if (gone) return;
          joined.current ??= join(plot, rings.current!, latest);
          if (bare) return;
          legend = place.querySelector<SVGGElement>(".legend")?.getBBox().height ?? 0;
          if (legend <= height * LEGEND) return;
          drawnSize = "";
          draw();
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
      gone = true;
      resize.disconnect();
      cancelAnimationFrame(frame);
    };
  }, [plotly, figure, hidden, theme, large]);

  useEffect(() => {
    const place = box.current!;
    const stop = (): void => joined.current?.();
    explorer.end.addEventListener("abort", stop);
    return () => {
      explorer.end.removeEventListener("abort", stop);
      stop();
      joined.current = null;
      plotly?.purge(place);
    };
  }, [plotly]);

  return (
    <div
      class="rt-chart"
      data-chart={name}
      hidden={hidden}
      {...(height ? { style: { "--rt-height": `${height}px` } } : {})}
    >
      <div class="rt-plot" role="img" aria-label={label} ref={box} hidden={!figure} />
      <svg class="rt-rings" ref={rings} aria-hidden="true" />
      {!figure && children}
      {visible && !plotly && isGone(explorer.study.kernelState.value) && (
        <p class="rt-quiet">The chart did not arrive before the kernel was gone.</p>
      )}
      {problem && <p class="rt-worse">The chart could not be shown: {problem}</p>}
    </div>
  );
}

/** The figure with text in the ink of the theme and, on a dark ground, with colours that stand out from it. */
function themed({ data, layout }: Plotted, { dark, ink, card, line }: Theme, scale: number): Plotted {
  const base = layout.font as { size?: number } | undefined;
  const font = { ...base, color: ink, size: scale * (base?.size ?? 12) };
  const hoverlabel = { ...(layout.hoverlabel as object), bgcolor: card, bordercolor: line, font };
  const recoloured = dark ? (recolour({ data, layout }) as Plotted) : { data, layout };
  return { data: recoloured.data, layout: { ...recoloured.layout, font, hoverlabel } };
}

const LEGEND = 0.3;
const upwards = ({ layout }: Plotted): string[] =>
  Object.keys(layout).filter((key) => /^yaxis\d*$/.test(key));

const [LETTER, ASIDE] = [7, 40];

const SHORT = 95;

/** A title of so many letters: its last part stays, which says what is worst, or what the numbers rest on. */
function titleOf(title: string, letters: number): string {
  const last = title.slice(title.lastIndexOf(" · "));
  if (title.length <= letters || last.length > 0.75 * letters) return shorten(title, letters);
  return shorten(title.slice(0, -last.length), letters - last.length) + last;
}

/** The figure with as much of its titles as has room; what it is called has all of it. */
function titled(figure: Plotted, width: number, height: number): Plotted {
  const { data, layout } = figure;
  const title = layout.title as { text?: string } | undefined;
  const text = titleOf(title?.text ?? "", Math.max(12, Math.floor((width - ASIDE) / LETTER)));
  const axes = upwards(figure);
  const bare = axes.length > 1 && height < SHORT * axes.length ? axes : [];
  const untitled = bare.map((name) => {
    const axis = layout[name] as { title?: { text?: string } };
    return [
      name,
      { ...axis, nticks: 2, title: { ...axis.title, text: axis.title?.text?.split(", ").at(-1) } },
    ];
  });
  return { data, layout: { ...layout, ...Object.fromEntries(untitled), title: { ...title, text } } };
}

function recolour(value: unknown): unknown {
  if (typeof value === "string") return onGround(value);
  if (Array.isArray(value)) return typeof value[0] === "number" ? value : value.map(recolour);
  if (!value || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, recolour(part)]));
}

/** What d3 keeps on the elements that plotly draws: a point's number; for a trace, its points. */
interface Drawn {
  __data__?: { i?: number } & { trace?: Trace }[];
}

/** Rings beyond these would cover each other. */
const MOST_RINGS = 400;

/** Joins a plot to the selection and the hover, until the function that it returns is called. */
function join(plot: Plot, rings: SVGSVGElement, joint: { current: Joint }): () => void {
  let points = new Map<string, Element[]>();
  let changed: Element[] = [];
  const find = (): void => {
    points = new Map();
    for (const point of plot.querySelectorAll(".point")) {
      const trace = (point.closest(".trace") as Drawn | null)?.__data__?.[0]?.trace;
      const id = trace?.ids?.[(point as Drawn).__data__?.i ?? -1];
      if (id === undefined) continue;
      append(points, id, point);
    }
  };
  const mark = (): void => {
    const { marked, pointed } = joint.current;
    const [selected, hovered] = [marked(), pointed()];
    for (const point of changed) point.classList.remove("rt-marked", "rt-pointed");
    const tag = (ids: ReadonlySet<string>, name: string): Element[] =>
      [...ids]
        .flatMap((id) => points.get(id) ?? [])
        .map((point) => {
          point.classList.add(name);
          return point;
        });
    changed = [...tag(selected, "rt-marked"), ...tag(hovered, "rt-pointed")];
    rings.replaceChildren(...ringed(plot, selected, "rt-marked"), ...ringed(plot, hovered, "rt-pointed"));
  };
  plot.on("plotly_afterplot", () => {
    find();
    mark();
  });
  plot.on("plotly_click", ({ points: [first], event }) => {
    if (first?.id) joint.current.pick(first.id, event?.shiftKey ?? false);
  });
  plot.on("plotly_hover", ({ points: [first] }) => joint.current.point(first?.id ?? null));
  plot.on("plotly_unhover", () => joint.current.point(null));
  find();
  return effect(mark);
}

/** Rings around points that are no elements of their own: those of a canvas, and those of a line. */
function ringed(plot: Plot, ids: ReadonlySet<string>, name: string): SVGElement[] {
  if (!ids.size || !plot._fullData) return [];
  const rings: SVGElement[] = [];
  for (const trace of plot._fullData) {
    const canvas =
      trace.type === "scattergl" || (trace.type === "scatter" && !trace.mode?.includes("markers"));
    if (!canvas || !trace.ids) continue;
    const axis = (key: string) => plot._fullLayout[key.replace(/^([xy])/, "$1axis")]!;
    const [across, up] = [axis(trace.xaxis), axis(trace.yaxis)];
    for (let i = 0; i < trace.ids.length && rings.length < MOST_RINGS; i++) {
      if (!ids.has(trace.ids[i]!)) continue;
      const [x, y] = [across.d2p(trace.x[i]), up.d2p(trace.y[i])];
      if (!(x >= 0 && x <= across._length && y >= 0 && y <= up._length)) continue;
      const ring = document.createElementNS("http://www.w3.org/2000/svg", "circle");
      ring.setAttribute("cx", `${x + across._offset}`);
      ring.setAttribute("cy", `${y + up._offset}`);
      ring.setAttribute("r", "7");
      ring.setAttribute("class", name);
      rings.push(ring);
    }
  }
  return rings;
}

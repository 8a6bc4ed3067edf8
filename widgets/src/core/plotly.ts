import type { AnyModel } from "@anywidget/types";
import { ask, type ExplorerTraits, type Plotted } from "./channel";
import type { Reply } from "./contract";
import { gunzip } from "./payload";

interface Pointed {
  event?: MouseEvent;
  points: { id?: string }[];
}

/** An axis as plotly works with it; its methods turn a value into pixels. */
interface Axis {
  _offset: number;
  _length: number;
  d2p(value: unknown): number;
}

export interface Trace {
  type: string;
  mode?: string;
  ids?: ArrayLike<string>;
  x: ArrayLike<unknown>;
  y: ArrayLike<unknown>;
  xaxis: string;
  yaxis: string;
}

export interface Plot extends HTMLElement {
  data: Plotted["data"];
  layout: Plotted["layout"];
  _fullData: Trace[];
  _fullLayout: Record<string, Axis>;
  on(name: "plotly_click" | "plotly_hover", listener: (event: Pointed) => void): void;
  on(name: "plotly_unhover" | "plotly_afterplot", listener: () => void): void;
}

export interface Plotly {
  react(
    place: HTMLElement,
    data: Plotted["data"],
    layout: Plotted["layout"],
    config: Record<string, unknown>,
  ): Promise<Plot>;
  purge(place: HTMLElement): void;
  downloadImage(
    figure: Plotted,
    options: { format: string; filename: string; width: number; height: number; scale: number },
  ): Promise<string>;
}

let loaded: Promise<Plotly> | null = null;

/**
 * Asks the kernel for plotly and imports it. It comes as a message and not as a trait, so that its megabytes are never
 * part of a saved notebook.
 */
export function loadPlotly(model: AnyModel<ExplorerTraits>, end: AbortSignal): Promise<Plotly> {
  return loadOnce(() =>
    requestScript(model, end).then(({ buffer, byteOffset, byteLength }) =>
      importScript(new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength)),
    ),
  );
}

/** Imports plotly from what a report holds of it; what goes wrong goes wrong again for who loads it. */
export function unpackPlotly(packed: Uint8Array<ArrayBuffer>): void {
  loadOnce(() => importScript(packed)).catch(() => {});
}

function loadOnce(load: () => Promise<Plotly>): Promise<Plotly> {
  if (!loaded) {
    loaded = load();
    loaded.catch(() => {
      loaded = null;
    });
  }
  return loaded;
}

async function importScript(packed: Uint8Array<ArrayBuffer>): Promise<Plotly> {
  const script = await gunzip(packed).arrayBuffer();
  const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  try {
    const module: { default: Plotly } = await import(url);
    return module.default;
  } finally {
    URL.revokeObjectURL(url);
  }
}

function requestScript(model: AnyModel<ExplorerTraits>, end: AbortSignal): Promise<DataView> {
  return new Promise((resolve, reject) => {
    const take = (reply: Reply, buffers: DataView[]): void => {
      if (reply.type !== "plotly" || !buffers[0]) return;
      model.off("msg:custom", take);
      resolve(buffers[0]);
    };
    model.on("msg:custom", take);
    end.addEventListener("abort", () => {
      model.off("msg:custom", take);
      reject(new Error("The view was closed."));
    });
    ask(model, { type: "plotly" });
  });
}

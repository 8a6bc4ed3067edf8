import type { AnyModel } from "@anywidget/types";
import type { ExplorerTraits } from "../core/channel";
import type { Saved } from "../core/contract";
import type { Parts } from "../core/parts";
import { fromBase64, gunzip } from "../core/payload";
import { unpackPlotly } from "../core/plotly";
import { render } from "../explorer/explorer";
import { StaticModel } from "./static_model";

async function draw(el: HTMLElement, parts: Parts): Promise<void> {
  const plotly = fromBase64(document.getElementById("figures")!.textContent!);
  // The browser compiles the library beside the page, which has the graphs to lay out meanwhile: so that comes first. A
  // tab with figures tells of what went wrong.
  unpackPlotly(plotly);
  const packed = fromBase64(document.getElementById("saved")!.textContent!);
  const model = new StaticModel((await gunzip(packed).json()) as Saved, plotly);
  const fill = (): void => model.set("height", window.innerHeight);
  fill();
  window.addEventListener("resize", fill);
  render({
    model: model as unknown as AnyModel<ExplorerTraits>,
    el,
    css: parts.run("core.js").css + parts.run("explorer.js").css,
    part: async (name) => parts.run(name),
  });
}

export function open(parts: Parts): void {
  const place = document.getElementById("report")!;
  draw(place, parts).catch((error: unknown) => {
    console.error(error);
    place.appendChild(document.createElement("p")).textContent =
      "This report cannot be shown: the file is damaged, or only a part of it was copied. Copy it again, or write " +
      "it anew with study.report.";
  });
}

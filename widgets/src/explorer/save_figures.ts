import { GLYPH } from "../core/format";
import type { Plot } from "../core/plotly";
import { declared } from "../panels/page";
import type { ExplorerState } from "./explorer_state";

const [WIDTH, HEIGHT, SCALE] = [1200, 500, 2];
const TITLE_MARGIN = 64;

export const visibleFigures = ({ paneSet: { root } }: ExplorerState): Plot[] =>
  [...root.querySelectorAll<Plot>(".rt-under .js-plotly-plot")].filter((plot) => plot.clientWidth > 0);

/** Saves each figure of the tab as a file: with model, variant and tab in its title, and the sources of its numbers. */
export async function saveFigures(explorer: ExplorerState, format: "svg" | "png"): Promise<void> {
  const { study, paneSet, choice, status, page } = explorer;
  const model = choice.value.model.split(/[\\/]/).at(-1);
  const variant = study.variantTitle(study.view.value.variant);
  const name = [model, variant, page.value.tab && declared(page.value.tab).label].filter(Boolean).join(" · ");
  const sources = status.value.map(({ origin, text, warning }) => `${warning ? "⚠" : GLYPH[origin]} ${text}`);
  const origins = Object.entries(GLYPH).map(([origin, glyph]) => `${glyph} ${origin}`);
  const plotly = await explorer.plotly();
  for (const [k, { data, layout, clientWidth, clientHeight }] of visibleFigures(explorer).entries()) {
    const { title, margin } = layout as { title?: { text?: string }; margin?: object };
    const text = `${[name, title?.text].filter(Boolean).join(" · ")}<br><sub>${[...sources, ...origins].join(" · ")}</sub>`;
    const figure = {
      data,
      layout: {
        ...layout,
        title: { ...title, text },
        margin: { ...margin, t: TITLE_MARGIN },
        paper_bgcolor: paneSet.theme.value.ground,
      },
    };
    await plotly.downloadImage(figure, {
      format,
      filename: `${name}${k ? ` ${k + 1}` : ""}`.replace(/[^\w.-]+/g, "_"),
      width: Math.max(WIDTH, clientWidth),
      height: Math.max(HEIGHT, clientHeight + TITLE_MARGIN),
      scale: format === "png" ? SCALE : 1,
    });
  }
}

import type { AnyModel } from "@anywidget/types";
import { ask } from "./channel";
import { type Exports, type Factory, Parts, type Surroundings } from "./parts";

type Draw = (props: { model: unknown; el: HTMLElement } & Surroundings) => () => void;
export type StartWidget = typeof startWidget;
export type WidgetRenderer = (props: { model: unknown; el: HTMLElement }) => () => void;

/** What the loaders of the page have taken, by name and digest. */
const page = globalThis as { rtlabScripts?: Map<string, Promise<Factory>> };
const parts = new Parts();

/** Returns the function that renders a widget, from the core's exports and the widget's own part. */
export function startWidget(core: Exports, name: string, entry: Factory): WidgetRenderer {
  parts.add("core.js", (module) => {
    module.exports = core;
  });
  parts.add(name, entry);
  const { css, render } = parts.run(name);
  return ({ model, el }) =>
    (render as Draw)({
      model,
      el,
      css: core.css + css,
      async part(name) {
        parts.add(name, await fetchPart(model as AnyModel, name));
        return parts.run(name);
      },
    });
}

/** Asks the kernel for a part, unless the page has it; the loader takes it before its arrival is heard here. */
async function fetchPart(model: AnyModel, name: string): Promise<Factory> {
  const scripts = page.rtlabScripts!;
  const key = `${name} ${(model.get("parcels") as Record<string, string>)["core.js"]}`;
  if (!scripts.has(key))
    await new Promise<void>((resolve) => {
      const look = (): void => {
        if (!scripts.has(key)) return;
        model.off("msg:custom", look);
        resolve();
      };
      model.on("msg:custom", look);
      ask(model, { type: "fetch", name });
    });
  try {
    return await scripts.get(key)!;
  } catch (error) {
    scripts.delete(key);
    throw error;
  }
}

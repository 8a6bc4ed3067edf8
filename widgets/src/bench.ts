import { effect, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { Side } from "./contract";
import type { Stage } from "./draw/stage";
import { Type } from "./draw/text";
import { isDark, onThemeChange, readTheme, type Theme } from "./draw/theme";
import { LayoutClient } from "./layout/client";
import type { Study } from "./state";

/** Where a box is drawn, for a browser test that clicks at a real point. */
interface Point {
  x: number;
  y: number;
}

/** What the panes of one widget share besides the study: its root, the layout worker, the theme, and each other. */
export class Bench {
  readonly study: Study;
  readonly root: HTMLElement;
  readonly layouts = new LayoutClient();
  readonly theme: Signal<Theme>;
  readonly type: ReadonlySignal<Type>;
  readonly stages: Partial<Record<Side, Stage>> = {};
  /** Called after any pane moved, for what is drawn across panes. */
  onFrame: () => void = () => {};

  constructor(study: Study, root: HTMLElement, end: AbortSignal) {
    this.study = study;
    this.root = root;
    this.theme = signal(this.#readTheme());
    this.type = signal(new Type(this.theme.value.font));
    onThemeChange(() => {
      this.theme.value = this.#readTheme();
    }, end);
    const stop = effect(() => this.#publishState());
    end.addEventListener("abort", () => {
      stop();
      this.layouts.stop();
    });
    Object.assign(root, { rtlabBoxAt: (side: Side, id: string) => this.boxAt(side, id) });
  }

  /** Scrolls a box to the middle of its pane and tells where in the page that is; null for an unknown box. */
  boxAt(side: Side, id: string): Point | null {
    const stage = this.stages[side];
    const box = stage?.scene?.index.get(id);
    if (!stage?.scene || box === undefined) return null;
    stage.camera.centreOn(stage.scene.x[box]!, stage.scene.y[box]!);
    const place = stage.place(box)!;
    const { left, top } = stage.origin;
    return { x: left + place.x + place.width / 2, y: top + place.y + place.height / 2 };
  }

  #readTheme(): Theme {
    const dark = isDark();
    this.root.classList.toggle("rt-dark", dark);
    return readTheme(this.root, dark);
  }

  #publishState(): void {
    const { view, pending, engine, source } = this.study;
    this.root.dataset.selection = JSON.stringify(view.value.selection);
    this.root.dataset.layers = JSON.stringify(view.value.layers);
    this.root.dataset.variant = engine.value?.variant ?? "";
    this.root.dataset.ready = pending.value === 0 && source.value ? "1" : "0";
  }
}

import { effect, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { PaneSet } from "../paneset";
import { spoken } from "../spoken";
import { Hint } from "./hint";
import { KernelBanner } from "./kernelwords";
import { Panes } from "./panes";

export function GraphView({ paneSet, height }: { paneSet: PaneSet; height: Signal<number> }) {
  useEffect(
    () =>
      effect(() => {
        paneSet.root.style.height = `${height.value}px`;
      }),
    [],
  );
  return (
    <div class="rt-frame">
      <KernelBanner reach={paneSet.study.reach.value} />
      <div class="rt-work">
        <Panes
          paneSet={paneSet}
          empty={{ node: "No model yet.", layer: "No engine yet.", other: "No engine to compare." }}
        />
        <span class="rt-spoken" aria-live="polite">
          {spoken(paneSet.study, paneSet.reading.value)}
        </span>
      </div>
      <Hint root={paneSet.root} />
    </div>
  );
}

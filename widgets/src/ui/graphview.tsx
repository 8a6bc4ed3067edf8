import { effect, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Bench } from "../bench";
import { spoken } from "../spoken";
import { KernelBanner } from "./kernelwords";
import { Panes } from "./panes";

export function GraphView({ bench, height }: { bench: Bench; height: Signal<number> }) {
  useEffect(
    () =>
      effect(() => {
        bench.root.style.height = `${height.value}px`;
      }),
    [],
  );
  return (
    <div class="rt-frame">
      <KernelBanner reach={bench.study.reach.value} />
      <div class="rt-work">
        <Panes
          bench={bench}
          empty={{ node: "No model yet.", layer: "No engine yet.", other: "No engine to compare." }}
        />
        <span class="rt-spoken" aria-live="polite">
          {spoken(bench.study, bench.reading.value)}
        </span>
      </div>
    </div>
  );
}

import { effect, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { KernelBanner } from "../explorer/kernel_banner";
import { Hint } from "../ui/hint";
import { ariaText } from "./aria_text";
import { Panes } from "./panes";
import type { PaneSet } from "./paneset";

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
      <KernelBanner reach={paneSet.study.kernelState.value} />
      <div class="rt-work">
        <Panes
          paneSet={paneSet}
          empty={{ node: "No model yet.", layer: "No engine yet.", other: "No engine to compare." }}
        />
        <span class="rt-spoken" aria-live="polite">
          {ariaText(paneSet.study, paneSet.reading.value)}
        </span>
      </div>
      <Hint root={paneSet.root} />
    </div>
  );
}

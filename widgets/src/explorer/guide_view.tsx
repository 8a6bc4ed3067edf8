import { useLayoutEffect, useRef } from "preact/hooks";
import { Close } from "../ui/icons";
import { Tool } from "../ui/tool";
import type { ExplorerState } from "./explorer_state";

export function GuideView({ explorer, root }: { explorer: ExplorerState; root: HTMLElement }) {
  const { guide } = explorer;
  const stop = guide.stop.value;
  const next = useRef<HTMLButtonElement>(null);
  useLayoutEffect(() => {
    if (!stop) return;
    const targets = stop.targets.flatMap((selector) => root.querySelector(selector) ?? []);
    for (const target of targets) target.classList.add("rt-guided");
    targets[0]?.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
    // A window lower than the Explorer has room for one of them, and the card has the keys.
    next.current?.focus({ preventScroll: true });
    next.current
      ?.closest(".rt-stop")
      ?.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
    return () => {
      for (const target of targets) target.classList.remove("rt-guided");
    };
  }, [stop]);
  if (!stop) return null;
  const stops = guide.stops.value;
  const at = stops.indexOf(stop);
  const last = at === stops.length - 1;
  return (
    <div
      class="rt-card rt-stop"
      role="dialog"
      aria-labelledby="rt-stop-title"
      aria-describedby="rt-stop-text"
      data-control="guide"
      data-stop={stop.name}
    >
      <header>
        <h3 id="rt-stop-title">{stop.title}</h3>
        <Tool
          label="Leave the tour (Esc)"
          help="Selection and tab are as before again."
          control="leave"
          icon={<Close />}
          onClick={() => guide.leave()}
        />
      </header>
      <p id="rt-stop-text" aria-live="polite">
        {stop.text}
      </p>
      <footer>
        <span class="rt-quiet" data-control="count">
          {at + 1} of {stops.length}
        </span>
        <span class="rt-fill" />
        <button
          type="button"
          class="rt-field"
          data-control="back"
          disabled={!at}
          onClick={() => guide.go(at - 1)}
        >
          Back (←)
        </button>
        <button
          type="button"
          class="rt-field rt-primary"
          data-control="next"
          ref={next}
          onClick={() => guide.go(at + 1)}
        >
          {last ? "Done" : "Next (→)"}
        </button>
      </footer>
    </div>
  );
}

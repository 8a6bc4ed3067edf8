import { useEffect, useRef } from "preact/hooks";

const KEYS: [string, string][] = [
  ["↑ ↓ ← →", "follow edges"],
  ["Enter", "select; with Shift add to the selection"],
  ["Tab", "move to the next pane"],
  ["o", "open or fold the group"],
  ["f  z", "fit the graph, zoom to the selection"],
  ["+  −", "zoom; also Ctrl and the wheel"],
  ["/", "search; n and N go through the hits"],
  ["u  d", "what comes before, what follows"],
  ["p", "paths between two selected boxes"],
  ["c", "next way to colour the pane"],
  ["m", "from nodes to layers"],
  ["s", "swap with the next pane"],
  ["← → Space", "in the tab Build: step through it, play it"],
  ["Esc", "leave the search, what stands out, the selection"],
  ["P  F", "present, full screen"],
  ["← → Home End", "while presenting: through the steps"],
  ["Click", "select a box, or a wire with both its ends; with Shift add; twice zooms to the box"],
  ["Alt", "held over a box: where its numbers come from"],
  ["?", "show or hide these keys"],
];

export function Help({ onClose }: { onClose(): void }) {
  const close = useRef<HTMLButtonElement>(null);
  useEffect(() => close.current?.focus(), []);
  return (
    <div class="rt-veil">
      <div class="rt-card rt-help" role="dialog" aria-label="Keys">
        <h3>Keys</h3>
        <dl>
          {KEYS.map(([key, meaning]) => (
            <>
              <dt>
                <kbd>{key}</kbd>
              </dt>
              <dd>{meaning}</dd>
            </>
          ))}
        </dl>
        <footer>
          <button type="button" class="rt-field" ref={close} onClick={onClose}>
            Close
          </button>
        </footer>
      </div>
    </div>
  );
}

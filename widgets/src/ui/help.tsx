import { useEffect, useRef } from "preact/hooks";

const KEYS: [string, string][] = [
  ["↑ ↓ ← →", "follow edges"],
  ["Enter", "select; with Shift add to the selection"],
  ["Tab", "move to the other pane"],
  ["Esc", "clear the selection"],
  ["/", "search"],
  ["f", "fit the graph into the pane"],
  ["+  −", "zoom; also Ctrl and the wheel"],
  ["c", "next way to colour the pane"],
  ["Shift-click", "add to the selection"],
  ["Double click", "zoom to a box"],
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

import { GLYPH } from "../core/format";
import { textsThatFit } from "../ui/responsive";
import type { ExplorerState } from "./explorer_state";

const LEFT = 0.65;

export function StatusLine({ explorer }: { explorer: ExplorerState }) {
  const sentence = explorer.sentence.value;
  const items = explorer.status.value.toSorted((a, b) => Number(b.warning) - Number(a.warning));
  const visible = textsThatFit(
    items.map(({ text }) => text),
    explorer.width.value * (sentence ? LEFT : 1),
  );
  return (
    <footer class="rt-status">
      {items.slice(0, visible.length).map(({ origin, text, warning }, k) => (
        <span key={origin + text} class={warning ? "rt-warning" : ""} title={`${origin}: ${text}`}>
          <b>{warning ? "⚠" : GLYPH[origin]}</b> {visible[k]}
        </span>
      ))}
      {visible.length < items.length && (
        <details data-control="more-known">
          <summary title="All sources of these numbers">{items.length - visible.length} more</summary>
          <ul class="rt-popup">
            {items.map(({ origin, text, warning }) => (
              <li key={origin + text}>
                <b>{warning ? "⚠" : GLYPH[origin]}</b> {text}
              </li>
            ))}
          </ul>
        </details>
      )}
      <span class="rt-sentence" aria-live="polite" title={sentence}>
        {sentence}
      </span>
    </footer>
  );
}

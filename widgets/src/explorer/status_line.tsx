import { GLYPH } from "../core/format";
import { textsThatFit } from "../ui/responsive";
import type { ExplorerState } from "./explorer_state";

/** What the sentence about the selection leaves to the rest of the line. */
const LEFT = 0.65;

export function StatusLine({ explorer }: { explorer: ExplorerState }) {
  const sentence = explorer.sentence.value;
  // What must not be missed comes first, whatever else has room.
  const known = explorer.status.value.toSorted((a, b) => Number(b.warning) - Number(a.warning));
  const shown = textsThatFit(
    known.map(({ text }) => text),
    explorer.width.value * (sentence ? LEFT : 1),
  );
  return (
    <footer class="rt-status">
      {known.slice(0, shown.length).map(({ origin, text, warning }, k) => (
        <span key={origin + text} class={warning ? "rt-warning" : ""} title={`${origin}: ${text}`}>
          <b>{warning ? "⚠" : GLYPH[origin]}</b> {shown[k]}
        </span>
      ))}
      {shown.length < known.length && (
        <details data-control="more-known">
          <summary title="All of what is known of these numbers">{known.length - shown.length} more</summary>
          <ul class="rt-popup">
            {known.map(({ origin, text, warning }) => (
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

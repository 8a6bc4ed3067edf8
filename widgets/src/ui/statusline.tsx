import { GLYPH } from "../format";
import type { Lab } from "../lab";

/** Below this width the details of a measurement stand in its tooltip alone. */
const ROOMY = 1300;

/** Which compiler, which runner, on what device; and the selection in words. */
export function StatusLine({ lab }: { lab: Lab }) {
  return (
    <footer class="rt-status">
      {lab.alive.value ? (
        lab.status.value.map(({ origin, text, warning }) => (
          <span key={origin + text} class={warning ? "rt-warning" : ""} title={`${origin}: ${text}`}>
            <b>{warning ? "⚠" : GLYPH[origin]}</b> {lab.width.value < ROOMY ? text.split(";")[0] : text}
          </span>
        ))
      ) : (
        <span class="rt-worse">
          The kernel was restarted: run the cell again. The graph can still be explored.
        </span>
      )}
      <span class="rt-sentence" aria-live="polite" title={lab.sentence.value}>
        {lab.sentence.value}
      </span>
    </footer>
  );
}

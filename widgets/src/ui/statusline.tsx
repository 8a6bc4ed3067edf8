import { GLYPH } from "../format";
import type { Lab } from "../lab";

/** Which compiler, which runner, on what device; and the selection in words. */
export function StatusLine({ lab }: { lab: Lab }) {
  return (
    <footer class="rt-status">
      {lab.alive.value ? (
        lab.status.value.map(({ origin, text }) => (
          <span key={origin + text} title={`${origin}: ${text}`}>
            <b>{GLYPH[origin]}</b> {text}
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

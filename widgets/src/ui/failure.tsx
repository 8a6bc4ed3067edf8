import type { Lab } from "../lab";
import { Warning } from "./icons";

/** What was tried, what was found, what to do next; the last good result stays behind the card. */
export function FailureCard({ lab }: { lab: Lab }) {
  const failure = lab.failure.value;
  if (!failure) return null;
  return (
    <div class="rt-veil">
      <div class="rt-card" role="alertdialog" aria-label={failure.kind || "Error"} data-control="failure">
        <h3>
          <Warning /> {failure.kind || "Error"}
        </h3>
        <p>{failure.message}</p>
        {failure.details && (
          <details>
            <summary>The compiler's own words</summary>
            <pre>{failure.details}</pre>
          </details>
        )}
        <footer>
          <button type="button" class="rt-field" data-control="dismiss" onClick={() => lab.dismiss()}>
            Close
          </button>
        </footer>
      </div>
    </div>
  );
}

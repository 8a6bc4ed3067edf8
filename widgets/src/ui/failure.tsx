import type { Failure } from "../contract";
import type { ExplorerState } from "../explorerstate";
import { Warning } from "./icons";
import { Sizes } from "./sizes";

/** What was tried, what was found, what to do next; the last good result stays behind the card. */
export function FailureCard({ explorer }: { explorer: ExplorerState }) {
  const failure = explorer.failure.value;
  if (!failure) return null;
  return (
    <div class="rt-veil">
      <div class="rt-card" role="alertdialog" aria-label={titleOf(failure.kind)} data-control="failure">
        <h3>
          <Warning /> {titleOf(failure.kind)}
        </h3>
        <p>{failure.message}</p>
        {unsized(explorer, failure) && <Sizes explorer={explorer} />}
        {failure.details && (
          <details>
            <summary>The compiler's own words</summary>
            <pre>{failure.details}</pre>
          </details>
        )}
        <footer>
          <button type="button" class="rt-field" data-control="dismiss" onClick={() => explorer.dismiss()}>
            Close
          </button>
        </footer>
      </div>
    </div>
  );
}

/** Whether nothing can be built of the model before somebody names sizes. */
function unsized(explorer: ExplorerState, { kind }: Failure): boolean {
  return kind === "ModelError" && !explorer.saved && explorer.controls.value.sizes.some((i) => i.lacking);
}

/** The kind of an error as words: "BuildError" becomes "Build error". */
function titleOf(kind: string): string {
  const words = kind.replace(/([a-z])([A-Z])/g, (_, a: string, b: string) => `${a} ${b.toLowerCase()}`);
  return words || "Error";
}

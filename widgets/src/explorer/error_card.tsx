import type { Command, Failure } from "../core/contract";
import { Warning } from "../ui/icons";
import type { ExplorerState } from "./explorer_state";
import { Dismiss, fitVariant, Sizes } from "./input_sizes";

/** What was tried, what was found, what to do next; the last good result stays behind the card. */
export function FailureCard({ explorer }: { explorer: ExplorerState }) {
  const failure = explorer.failure.value;
  if (!failure || asks(explorer, failure)) return null;
  const remedied = failure.until.length + failure.rewrites.length > 0;
  const open = !remedied && sizable(explorer, failure);
  return (
    <div class="rt-veil">
      <div
        class="rt-card rt-telling"
        role="alertdialog"
        aria-label={titleOf(failure.kind)}
        data-control="failure"
      >
        <h3>
          <Warning /> {titleOf(failure.kind)}
        </h3>
        <div class="rt-said">
          <p>{failure.message}</p>
          <OtherBackend explorer={explorer} message={failure.message} />
          {failure.details && (
            <details>
              <summary>Compiler output</summary>
              <pre>{failure.details}</pre>
            </details>
          )}
        </div>
        {open ? (
          <>
            <p class="rt-quiet">
              The sizes of the inputs may be the reason; no others were tried. Try some, such as multiples of
              32.
            </p>
            <Sizes explorer={explorer} />
          </>
        ) : (
          <footer>
            {failure.rewrites.length > 0 && !explorer.saved && (
              <button
                type="button"
                class="rt-build rt-call"
                data-control="rewrite"
                title={`A variant beside it, with ${failure.rewrites.join(", ")}: computes the same`}
                onClick={() => explorer.send(remedyOf(failure))}
              >
                Build it from other operators
              </button>
            )}
            {failure.until.length > 0 && !explorer.saved && (
              <button
                type="button"
                class="rt-build rt-call"
                data-control="cut"
                title={`The model up to ${failure.until.join(", ")}: what comes behind is left out`}
                onClick={() => explorer.send({ type: "cut", until: failure.until })}
              >
                Build the model before it
              </button>
            )}
            <Dismiss explorer={explorer} />
          </footer>
        )}
      </div>
    </div>
  );
}

function remedyOf({ variant, rewrites }: Failure): Command {
  return { type: "work", work: "remedy", variant, values: { rewrites: rewrites.join("\n") } };
}

/** The sizes of the inputs above the graphs, which stay in view; asked for where they lack, else where one wants others. */
export function SizesBar({ explorer }: { explorer: ExplorerState }) {
  const failure = explorer.failure.value;
  if (!explorer.sizing.value && !(failure && asks(explorer, failure))) return null;
  const { sizes } = explorer.controls.value;
  const lacking = sizes.filter((size) => size.lacking);
  const title = lacking.length ? "Which sizes do the inputs have?" : "Sizes of the inputs";
  const about = lacking.some(({ size }) => size === null)
    ? "An engine is built for fixed ones. None of the usual ones fits this graph: put in what you run."
    : lacking.length
      ? "An engine is built for fixed ones. These are proposals that the whole graph accepts: put in what you run."
      : fitVariant(sizes)
        ? "A variant at other sizes stands beside the others, as one step of a decoder beside the prefill."
        : "Other sizes begin anew: variants of the present sizes go.";
  return (
    <section class="rt-sizebar" aria-label={title} data-control="sizing">
      <p>
        <b>{title}</b> <span class="rt-quiet">{about}</span>
      </p>
      <Sizes explorer={explorer} />
    </section>
  );
}

function OtherBackend({ explorer, message }: { explorer: ExplorerState; message: string }) {
  const backend = /backend="([^"]+)"/.exec(message)?.[1];
  if (!backend || explorer.saved) return null;
  const offered = explorer.controls.value.compilers.find(({ id }) => id === backend);
  return (
    <p class="rt-quiet">
      {offered
        ? `Here: "More settings" (⋯) in the top row, Compiler, ${offered.label}.`
        : `No menu here offers "${backend}". In a cell, with this Explorer's study: study.add("other", backend="${backend}"), then study.run(["other"]); it appears here.`}
    </p>
  );
}

function asks(explorer: ExplorerState, { kind }: Failure): boolean {
  return kind === "Unsized" && !explorer.saved && explorer.controls.value.sizes.length > 0;
}

function sizable(explorer: ExplorerState, { kind }: Failure): boolean {
  return SIZED.includes(kind) && !explorer.saved && explorer.controls.value.sizes.length > 0;
}

const SIZED: readonly string[] = ["ModelError", "BuildError", "RunError"];

function titleOf(kind: string): string {
  const words = kind.replace(/([a-z])([A-Z])/g, (_, a: string, b: string) => `${a} ${b.toLowerCase()}`);
  return words || "Error";
}

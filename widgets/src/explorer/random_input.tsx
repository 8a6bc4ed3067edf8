import { useRef } from "preact/hooks";
import type { Chip } from "../core/contract";
import { Warning } from "../ui/icons";
import type { ExplorerState } from "./explorer_state";
import { SAMPLES } from "./files";

/** How every view marks what rests on random input. */
export const RANDOM = "random input";

/** Below this width the row of the variants has no room for words that the chips have too. */
const WORDY = 1100;

/** On a chip: some of its numbers rest on random input. */
export function RandomTag({ chip }: { chip: Chip }) {
  if (!chip.random || chip.status !== "ready") return null;
  return <small class="rt-random">{RANDOM}</small>;
}

/** As long as the model runs on random input: that it does, and where its own data goes. */
export function RandomMark({ explorer }: { explorer: ExplorerState }) {
  const { random, source } = explorer.data.value;
  if (!random || explorer.saved) return null;
  return (
    <span
      class="rt-notice"
      data-control="random"
      title={`The model runs on ${source}: graphs and times are as they would be, errors and scales are not`}
    >
      <Warning /> {explorer.width.value >= WORDY && `${RANDOM}: `}
      <GiveData explorer={explorer} label="drop data here" />
    </span>
  );
}

/** Above errors that rest on random input: what they are worth, and what data the model takes. */
export function RandomBanner({ explorer, hidden }: { explorer: ExplorerState; hidden: boolean }) {
  const shown = explorer.study.engine.value?.variant;
  const chip = explorer.chips.value.find(({ id }) => id === shown);
  if (!chip?.random || hidden) return null;
  const { random, inputs } = explorer.data.value;
  const takes = inputs?.length ? `The model takes ${inputs.join("; ")}` : "";
  return (
    <p class="rt-banner" role="note" data-control="random-banner" title={takes}>
      <Warning /> <b>Random input:</b> {chip.random} of noise, no finding.{" "}
      {random ? (
        <GiveData explorer={explorer} label="Drop data here" />
      ) : (
        <button
          type="button"
          class="rt-link"
          disabled={explorer.busy() !== ""}
          onClick={() => explorer.send({ type: "rebuild", variant: chip.id })}
        >
          Build it again on the new data
        </button>
      )}
    </p>
  );
}

/** A file can be dropped on it, as anywhere, or chosen with a click. */
function GiveData({ explorer, label }: { explorer: ExplorerState; label: string }) {
  const input = useRef<HTMLInputElement>(null);
  const why = explorer.busy();
  return (
    <>
      <button
        type="button"
        class="rt-link"
        data-control="data"
        disabled={why !== ""}
        title={
          why ||
          "Samples of the model's own: an .npz with one array per input, or an .npy for a model with one"
        }
        onClick={() => input.current!.click()}
      >
        {label}
      </button>
      <input
        type="file"
        hidden
        ref={input}
        accept={SAMPLES}
        aria-label="Samples for the model's inputs"
        onChange={({ currentTarget }) => {
          void explorer.drop([...(currentTarget.files ?? [])]);
          currentTarget.value = "";
        }}
      />
    </>
  );
}

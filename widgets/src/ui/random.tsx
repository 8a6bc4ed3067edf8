import { useRef } from "preact/hooks";
import type { Chip } from "../contract";
import { SAMPLES } from "../dropped";
import type { Lab } from "../lab";
import { Warning } from "./icons";

/** How every view marks what rests on random input. */
export const RANDOM = "random input";

/** On a chip: some of its numbers rest on random input. */
export function RandomTag({ chip }: { chip: Chip }) {
  if (!chip.random || chip.status !== "ready") return null;
  return <small class="rt-random">{RANDOM}</small>;
}

/** As long as the model runs on random input: that it does, and where its own data goes. */
export function RandomMark({ lab }: { lab: Lab }) {
  const { random, source } = lab.data.value;
  if (!random || lab.saved) return null;
  return (
    <span
      class="rt-notice"
      data-control="random"
      title={`The model runs on ${source}: graphs and times are as they would be, errors and scales are not`}
    >
      <Warning /> {RANDOM}: <GiveData lab={lab} label="drop data here" />
    </span>
  );
}

/** Above errors that rest on random input: what they are worth, and what data the model takes. */
export function RandomBanner({ lab, hidden }: { lab: Lab; hidden: boolean }) {
  const shown = lab.study.engine.value?.variant;
  const chip = lab.chips.value.find(({ id }) => id === shown);
  if (!chip?.random || hidden) return null;
  const { random, inputs } = lab.data.value;
  const takes = inputs?.length ? `The model takes ${inputs.join("; ")}` : "";
  return (
    <p class="rt-banner" role="note" data-control="random-banner" title={takes}>
      <Warning /> <b>Random input:</b> {chip.random} of noise, no finding.{" "}
      {random ? (
        <GiveData lab={lab} label="Drop data here" />
      ) : (
        <button
          type="button"
          class="rt-link"
          disabled={lab.busy() !== ""}
          onClick={() => lab.send("rebuild", chip.id)}
        >
          Build it again on the new data
        </button>
      )}
    </p>
  );
}

/** A file can be dropped on it, as anywhere, or chosen with a click. */
function GiveData({ lab, label }: { lab: Lab; label: string }) {
  const input = useRef<HTMLInputElement>(null);
  const why = lab.busy();
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
          void lab.drop([...(currentTarget.files ?? [])]);
          currentTarget.value = "";
        }}
      />
    </>
  );
}

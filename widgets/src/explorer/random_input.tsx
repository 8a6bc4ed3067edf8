import type { Chip } from "../core/contract";
import { Warning } from "../ui/icons";
import type { ExplorerState } from "./explorer_state";
import { OpenFiles } from "./open_files";

export const RANDOM = "random input";

const WORDY = 1100;

export function RandomTag({ chip }: { chip: Chip }) {
  if (!chip.random || chip.status !== "ready") return null;
  return <small class="rt-random">{RANDOM}</small>;
}

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
      <OpenFiles explorer={explorer} label="drop data here" />
    </span>
  );
}

export function RandomBanner({ explorer, hidden }: { explorer: ExplorerState; hidden: boolean }) {
  const current = explorer.study.engine.value?.variant;
  const chip = explorer.chips.value.find(({ id }) => id === current);
  if (!chip?.random || hidden) return null;
  const { random, inputs } = explorer.data.value;
  const takes = inputs?.length ? `The model takes ${inputs.join("; ")}` : "";
  return (
    <p class="rt-banner" role="note" data-control="random-banner" title={takes}>
      <Warning /> <b>Random input:</b> {chip.random} of noise, no finding.{" "}
      {random ? (
        <OpenFiles explorer={explorer} label="Drop data here" />
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

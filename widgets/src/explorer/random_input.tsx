import { Warning } from "../ui/icons";
import type { ExplorerState } from "./explorer_state";
import { OpenFiles } from "./open_files";

const RANDOM = "random input";

/** What of the variants rests on noise, said once for all of them; null where nothing does. */
export function RandomMark({ explorer }: { explorer: ExplorerState }) {
  const { random, source } = explorer.data.value;
  const built = explorer.chips.value.filter(({ status }) => status === "ready");
  const noisy = built.filter((chip) => chip.random);
  const open = random && !explorer.saved;
  if (!open && !noisy.length) return null;
  const some = noisy.length > 0 && noisy.length < built.length;
  return (
    <span
      class="rt-notice"
      data-control="random"
      title={`${source ? `The model runs on ${source}: g` : "G"}raphs and times are as they would be, errors and scales are not`}
    >
      <Warning /> {RANDOM}
      {some && ` in ${noisy.map(({ label }) => label).join(", ")}`}
      {open && ": "}
      {open && <OpenFiles explorer={explorer} label="drop data here" />}
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

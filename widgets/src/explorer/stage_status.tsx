import { isGone } from "../core/connection";
import type { StageName, StageStatus } from "../core/contract";
import { Warning } from "../ui/icons";
import type { ExplorerState } from "./explorer_state";

const WAITING: Record<StageName, string> = {
  compiled: "Compiling …",
  timed: "Timing …",
  compared: "Comparing values …",
  scored: "Scoring the task …",
};

interface Props {
  explorer: ExplorerState;
  stages: readonly StageName[];
  beside?: boolean;
}

/** How far stages of the variant on screen came, where they are not done, and the button that goes on. */
export function StageStatuses({ explorer, stages, beside = false }: Props) {
  const open = explorer
    .stageStatuses()
    .filter(({ stage, state, more }) => stages.includes(stage) && (state !== "done" || more));
  const visible = open.filter((one) => one.state === "waiting" || (beside ? measurable(one) : words(one)));
  if (!visible.length) return null;
  return (
    <p class="rt-standing" role="status">
      {visible.map((standing) => (
        <span
          key={standing.stage}
          data-stage={standing.stage}
          data-state={standing.state}
          class={standing.why === "failed" ? "rt-stage-failed" : ""}
          title={words(standing)}
        >
          {standing.state === "waiting" && <i class="rt-spin" aria-hidden="true" />}
          {standing.why === "failed" && <Warning />}
          {words(standing)}
        </span>
      ))}
      {!explorer.saved && !isGone(explorer.study.kernelState.value) && open.some(measurable) && (
        <Measure explorer={explorer} standings={open} />
      )}
    </p>
  );
}

function Measure({ explorer, standings }: { explorer: ExplorerState; standings: readonly StageStatus[] }) {
  const reason = explorer.busy();
  const label = measureLabel(standings);
  return (
    <button
      type="button"
      class="rt-field"
      data-control="measure"
      aria-disabled={reason !== ""}
      title={reason || "Go on where it stopped, for as long again as the settings allow"}
      onClick={() => reason || explorer.measure()}
    >
      {label}
    </button>
  );
}

export const measurable = ({ more }: StageStatus): boolean => more;

export const measureLabel = (standings: readonly StageStatus[]): string =>
  standings.some(({ state }) => state === "partial" || state === "done") ? "Measure more" : "Measure now";

function words({ stage, state, text, basis }: StageStatus): string {
  if (state === "waiting") return WAITING[stage];
  if (state === "done") return `${stage.charAt(0).toUpperCase()}${stage.slice(1)} on ${basis}.`;
  if (!text) return "";
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

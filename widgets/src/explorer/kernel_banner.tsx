import { isGone, type KernelState } from "../core/connection";
import { useDelayed } from "../ui/hooks";
import { Close, Warning } from "../ui/icons";
import { Tool } from "../ui/tool";
import type { ExplorerState } from "./explorer_state";

/** A connection that is back at once, and a kernel that is busy for a moment, are not worth a word. */
const AWAY_MS = 1000;
const BUSY_MS = 600;

const ENDS: Partial<Record<KernelState, string>> = {
  restarted: "The kernel was restarted.",
  died: "The kernel died and was started again.",
  ended: "The kernel of this view no longer runs.",
  away: "The connection to the kernel is lost.",
  dropped: "The connection to the kernel is lost.",
};
const LOOK = "The graphs can still be moved, zoomed and selected";
const AGAIN = "To go on, run the cells again, from the one that makes the study.";
const ON: Partial<Record<KernelState, string>> = {
  away: "Jupyter is trying to connect again.",
  dropped: "Choose “Reconnect to Kernel” in the menu “Kernel”, or reload the page.",
};

interface Props {
  reach: KernelState;
  rest?: string;
  lost?: string;
  asks?: boolean;
}

/** That the kernel is gone or cannot be reached, what still works, and how to go on. */
export function KernelBanner({ reach, rest = "", lost = "", asks = false }: Props) {
  const off = isGone(reach);
  const away = useDelayed(asks && (reach === "away" || reach === "dropped"), AWAY_MS);
  if (!off && !away) return null;
  return (
    <div class="rt-banner rt-unreached" role="status" data-control="kernel" data-reach={reach}>
      <Warning />
      <p>
        <b>{ENDS[reach]}</b> {lost} {off ? AGAIN : ON[reach]}{" "}
        <span class="rt-quiet">
          {LOOK}
          {rest}.{off && " A report needs no kernel: "}
          {off && <code>study.report("report.html")</code>}
        </span>
      </p>
    </div>
  );
}

export function ExplorerBanner({ explorer }: { explorer: ExplorerState }) {
  const { value: lost } = explorer.lost;
  return (
    <KernelBanner
      reach={explorer.study.kernelState.value}
      rest="; open tabs can be read"
      lost={lost && `The running work, “${lost}”, was lost.`}
      asks
    />
  );
}

/** Where the kernel has saved the study, and how to open it. */
export function SavedBanner({ explorer }: { explorer: ExplorerState }) {
  const saved = explorer.saving.value;
  if (!saved) return null;
  return (
    <div class="rt-banner" role="status" data-control="saved">
      <p>
        {saved.text} <code>{saved.python}</code>
      </p>
      <Tool
        label="Close this notice"
        onClick={() => {
          explorer.saving.value = null;
        }}
        icon={<Close />}
      />
    </div>
  );
}

export function BusyWords({ explorer }: { explorer: ExplorerState }) {
  const late = useDelayed(explorer.isWaiting.value, BUSY_MS);
  return (
    <div class="rt-toast" role="status" data-control="busy" hidden={!late}>
      {late && (
        <>
          <b>The kernel is busy.</b> What you asked for follows when it is free.
        </>
      )}
    </div>
  );
}

import { effect, useComputed } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import type { Tab } from "../contract";
import { onKeys } from "../keys";
import type { Lab } from "../lab";
import { gone } from "../reach";
import { Bottom } from "./bottom";
import { Chips } from "./chips";
import { Divider } from "./divider";
import { Elsewhere } from "./elsewhere";
import { FailureCard } from "./failure";
import { Help } from "./help";
import { BusyWords, ExplorerBanner } from "./kernelwords";
import { Panel } from "./panel";
import { Panes } from "./panes";
import { Start } from "./start";
import { StatusLine } from "./statusline";
import { TopRow } from "./toprow";

const LEAST_HEIGHT = 420;
/** What share of the height a tab has until somebody drags the border. */
const SHARES: Partial<Record<Tab, number>> = { engine: 0.42, build: 0.42, findings: 0.42 };
const PANEL_SHARE = 0.5;
const LEAST_SHARE = 0.36;
const LEAST_BOTTOM = 34;
const LEAST_WORK = 180;
/** Below this width the side panel gives way to the graphs. */
const ROOMY = 900;

export function ExplorerView({ lab, root }: { lab: Lab; root: HTMLElement }) {
  const [bottom, setBottom] = useState<number | null>(null);
  const [dropping, setDropping] = useState(false);
  useEffect(() => {
    const observer = new ResizeObserver(() => {
      lab.width.value = root.clientWidth;
    });
    observer.observe(root);
    onKeys(root, (event) => {
      if (event.key === "Escape" && (lab.help.value || lab.failure.value || lab.elsewhere.value)) {
        if (lab.help.value) lab.toggleHelp();
        else if (lab.failure.value) lab.dismiss();
        else lab.closeElsewhere();
        return true;
      }
      if (event.key !== "?" || event.target instanceof HTMLInputElement) return false;
      lab.toggleHelp();
      return true;
    });
    const stop = effect(() => {
      root.style.height = `${lab.tall.value}px`;
      root.classList.toggle("rt-narrow", lab.width.value < ROOMY);
      root.dataset.stale = lab.stale.value ? "1" : "0";
      root.dataset.building = lab.build.value.running ? "1" : "0";
    });
    return () => {
      stop();
      observer.disconnect();
    };
  }, []);

  const loading = useComputed(
    () =>
      !lab.study.source.value &&
      !gone(lab.study.reach.value) &&
      (lab.study.pending.value > 0 || lab.study.preparing.value),
  );
  const { tab, segment } = lab.page.value;
  const share = segment && segment !== "layers" ? PANEL_SHARE : (SHARES[tab] ?? LEAST_SHARE);
  const tall = bottom ?? Math.max(150, Math.round(lab.tall.value * share));
  const most = lab.tall.value - LEAST_WORK - 120;
  const height = Math.min(most, Math.max(LEAST_BOTTOM, tall));
  const files = (event: DragEvent): boolean =>
    !lab.saved && Boolean(event.dataTransfer?.types.includes("Files"));
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: a place to drop files; the model list offers the same by path
    <div
      class={`rt-frame ${dropping ? "rt-dropping" : ""}`}
      onDragOver={(event) => {
        if (!files(event)) return;
        event.preventDefault();
        event.stopPropagation();
        setDropping(true);
      }}
      onDragLeave={(event) => {
        if (!(event.relatedTarget instanceof Node && event.currentTarget.contains(event.relatedTarget)))
          setDropping(false);
      }}
      onDrop={(event) => {
        if (!files(event)) return;
        event.preventDefault();
        event.stopPropagation();
        setDropping(false);
        void lab.drop([...(event.dataTransfer?.files ?? [])]);
      }}
    >
      <TopRow lab={lab} />
      <Chips lab={lab} />
      {!lab.saved && <ExplorerBanner lab={lab} />}
      <div class="rt-work">
        <Panes
          bench={lab.bench}
          lab={lab}
          stale={lab.stale.value}
          empty={{
            node: loading.value ? <div class="rt-skeleton" /> : <Start lab={lab} />,
            layer: <Waiting lab={lab} />,
            other: <Comparing lab={lab} />,
          }}
        />
        <Panel lab={lab} />
        <Elsewhere lab={lab} />
        {!lab.saved && <BusyWords lab={lab} />}
        <FailureCard lab={lab} />
        {lab.help.value && <Help onClose={() => lab.toggleHelp()} />}
      </div>
      <Divider
        label="Move the line above the charts"
        axis="y"
        value={height}
        least={LEAST_BOTTOM}
        most={most}
        onMove={(by) => setBottom(Math.min(most, Math.max(LEAST_BOTTOM, height - by)))}
      />
      <Bottom lab={lab} height={height} />
      <StatusLine lab={lab} />
      {!lab.saved && (
        <Divider
          label="Change the height"
          axis="y"
          class="rt-handle"
          value={lab.tall.value}
          least={LEAST_HEIGHT}
          most={2000}
          onMove={(by, done) => lab.resize(Math.max(LEAST_HEIGHT, lab.tall.value + by), done)}
        />
      )}
    </div>
  );
}

/** The third pane before its engine has arrived. */
function Comparing({ lab }: { lab: Lab }) {
  const { reach, view } = lab.study;
  if (view.value.compared)
    return gone(reach.value) ? <p>{lab.study.coming("Its layers")}</p> : <div class="rt-skeleton" />;
  return (
    <div class="rt-start">
      <h3>Compare a variant</h3>
      <p>Choose “Compare in a third pane” from the menu of a variant above.</p>
    </div>
  );
}

function Waiting({ lab }: { lab: Lab }) {
  const { running, phase } = lab.build.value;
  if (running) return <div class="rt-skeleton" title={phase} />;
  if (!lab.study.source.value) return null;
  if (gone(lab.study.reach.value)) return <p>{lab.study.coming("The layers of an engine")}</p>;
  return (
    <div class="rt-start">
      <h3>No engine yet</h3>
      <p>Choose a precision and a target, then press Build.</p>
    </div>
  );
}

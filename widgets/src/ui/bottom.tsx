import { useLayoutEffect, useRef } from "preact/hooks";
import type { Tab } from "../contract";
import { onKeys } from "../keys";
import type { Lab } from "../lab";
import { BuildView } from "./build";
import { CalibrationView } from "./calibration";
import { Chart } from "./chart";
import { EngineSummary } from "./engine";
import { FindingsView, findingsOf } from "./findings";
import { LayerTable } from "./table";

/** From this width on the accuracy chart stands beside the other tabs, except for those that need the whole width. */
const SIDE_BY_SIDE = 900;

const WHOLE_WIDTH = new Set<Tab>(["engine", "build", "calibration", "findings", "table"]);

const LABELS: Record<Tab, string> = {
  timing: "Timing",
  accuracy: "Accuracy",
  engine: "Engine",
  build: "Build",
  calibration: "Calibration",
  findings: "Findings",
  table: "Table",
};

/** What the bottom offers. plotly draws the charts, and a report comes without it. */
function tabsOf(lab: Lab, wide: boolean): Tab[] {
  if (lab.saved)
    return [
      "table",
      "engine",
      "build",
      ...(lab.calibration.value ? ["calibration" as const] : []),
      "findings",
    ];
  return [
    "timing",
    ...(wide ? [] : ["accuracy" as const]),
    "engine",
    "build",
    "calibration",
    "findings",
    "table",
  ];
}

export function Bottom({ lab, height }: { lab: Lab; height: number }) {
  const wide = !lab.saved && lab.width.value >= SIDE_BY_SIDE;
  const tabs = tabsOf(lab, wide);
  const wanted = lab.study.view.value.tab;
  const tab = tabs.includes(wanted) ? wanted : tabs[0]!;
  const found = findingsOf(lab).length;
  return (
    <div class="rt-bottom" style={{ height: `${height}px` }}>
      <section aria-label={LABELS[tab]}>
        {tabs.length > 1 && (
          <Tabs
            tabs={tabs}
            tab={tab}
            label={(name) => (name === "findings" && found ? `${LABELS[name]} ${found}` : LABELS[name])}
            onPick={(name) => lab.study.change({ tab: name })}
          />
        )}
        {!lab.saved && <Chart lab={lab} name="timing" hidden={tab !== "timing"} />}
        {!lab.saved && !wide && <Chart lab={lab} name="accuracy" hidden={tab !== "accuracy"} />}
        {tab === "engine" && <EngineSummary lab={lab} />}
        {tab === "build" && <BuildView lab={lab} />}
        {tab === "calibration" && <CalibrationView lab={lab} />}
        {tab === "findings" && <FindingsView lab={lab} />}
        {tab === "table" && <LayerTable lab={lab} />}
      </section>
      {wide && (
        <section hidden={WHOLE_WIDTH.has(tab)}>
          <div class="rt-tabs">
            <button type="button" data-tab="accuracy" aria-current="true" tabIndex={-1} class="rt-heading">
              Accuracy
            </button>
          </div>
          <Chart lab={lab} name="accuracy" hidden={WHOLE_WIDTH.has(tab)} />
        </section>
      )}
    </div>
  );
}

interface TabsProps {
  tabs: readonly Tab[];
  tab: Tab;
  label(tab: Tab): string;
  onPick(tab: Tab): void;
}

function Tabs({ tabs, tab, label, onPick }: TabsProps) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    onKeys(box.current, ({ key }) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[key];
      if (!by) return false;
      const next = tabs[(tabs.indexOf(tab) + by + tabs.length) % tabs.length]!;
      onPick(next);
      box.current?.querySelector<HTMLElement>(`[data-tab="${next}"]`)?.focus();
      return true;
    });
  });
  return (
    <div class="rt-tabs" role="tablist" aria-label="Charts and tables" ref={box}>
      {tabs.map((name) => (
        <button
          type="button"
          role="tab"
          key={name}
          data-tab={name}
          aria-selected={name === tab}
          tabIndex={name === tab ? 0 : -1}
          onClick={() => onPick(name)}
        >
          {label(name)}
        </button>
      ))}
    </div>
  );
}

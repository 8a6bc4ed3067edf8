import type { Tab } from "../contract";
import { findingsOf } from "../findings";
import type { Lab } from "../lab";
import { LATE_TABS } from "../late";
import { SEGMENT_LABELS } from "../panels";
import { LateView } from "./latetab";
import { LayerChart } from "./layerchart";
import { RandomBanner } from "./random";
import { Standings } from "./standing";
import { TabList, TabRow } from "./tabs";

const LABELS: Record<Tab, string> = {
  timing: "Timing",
  compare: "Compare",
  memory: "Memory",
  streams: "Streams",
  tuning: "Tuning",
  recurrence: "Recurrence",
  accuracy: "Accuracy",
  engine: "Engine",
  build: "Build",
  calibration: "Calibration",
  findings: "Findings",
  table: "Table",
};

/** Where the view holds the order of the bars, and what can be chosen. */
const ORDER = "layers.order";
const ORDERS = ["step", "time"] as const;
const ORDER_LABELS = { step: "by step", time: "by time" };

export function Bottom({ lab, height }: { lab: Lab; height: number }) {
  const { tabs, tab, segments, segment } = lab.page.value;
  const found = findingsOf(lab).length;
  const order = lab.study.view.value.settings[ORDER] === "time" ? "time" : "step";
  const late = segment && segment !== "layers" ? "analysis" : LATE_TABS.find((one) => one === tab);
  const wide = !lab.saved && !tabs.includes("accuracy");
  const choice = segments.length > 1 && segment && (
    <TabList
      class="rt-segments rt-small rt-parts"
      mark="segment"
      title={LABELS[tab]}
      names={segments}
      name={segment}
      label={(one) => SEGMENT_LABELS[one]}
      onPick={(one) => lab.set(tab, one)}
    />
  );
  return (
    <div class="rt-bottom" style={{ height: `${height}px` }}>
      <TabRow
        title="Charts and tables"
        names={tabs}
        name={tab}
        label={(name) => (name === "findings" && found ? `${LABELS[name]} ${found}` : LABELS[name])}
        onPick={(name) => lab.study.change({ tab: name })}
      />
      <div class="rt-under">
        <section aria-label={LABELS[tab]}>
          {segment === "layers" && (
            <div class="rt-caption">
              {choice}
              {!lab.saved && lab.study.engine.value && (
                <TabList
                  class="rt-segments rt-small rt-parts"
                  mark="order"
                  title="Order of the layers"
                  names={ORDERS}
                  name={order}
                  label={(one) => ORDER_LABELS[one]}
                  onPick={(one) => lab.set(ORDER, one)}
                />
              )}
              <Standings lab={lab} stages={["timed"]} />
            </div>
          )}
          {tab === "accuracy" && <Standings lab={lab} stages={["compared", "scored"]} />}
          {!lab.saved && (
            <LayerChart
              lab={lab}
              name="timing"
              figure={order === "time" ? "longest" : "timing"}
              hidden={segment !== "layers"}
            />
          )}
          {!lab.saved && !wide && <RandomBanner lab={lab} hidden={tab !== "accuracy"} />}
          {!lab.saved && !wide && (
            <LayerChart lab={lab} name="accuracy" hidden={tab !== "accuracy" || uncompared(lab)} />
          )}
          {late && (
            <LateView
              key={`${late} ${segment}`}
              lab={lab}
              tab={late}
              given={segment ? { name: segment, choice: choice || null } : {}}
            />
          )}
        </section>
        {wide && (
          <section aria-label={LABELS.accuracy} hidden={segment !== "layers"}>
            <div class={`rt-caption ${uncompared(lab) ? "rt-alone" : ""}`}>
              <h4>{LABELS.accuracy}</h4>
              <Standings lab={lab} stages={["compared", "scored"]} beside={!uncompared(lab)} />
            </div>
            <RandomBanner lab={lab} hidden={segment !== "layers"} />
            <LayerChart lab={lab} name="accuracy" hidden={segment !== "layers" || uncompared(lab)} />
          </section>
        )}
      </div>
    </div>
  );
}

/** Whether words stand in the place of errors, because there are none, or none yet. */
const uncompared = (lab: Lab): boolean =>
  lab.standings().some(({ stage, state }) => stage === "compared" && !["done", "partial"].includes(state));

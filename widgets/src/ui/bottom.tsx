import type { Tab } from "../contract";
import type { Lab } from "../lab";
import { Chart } from "./chart";
import { LayerTable } from "./table";

/** From this width on the accuracy chart stands beside the timing chart or the table. */
const SIDE_BY_SIDE = 900;

const LABELS: Record<Tab, string> = { timing: "Timing", accuracy: "Accuracy", table: "Table" };

export function Bottom({ lab, height }: { lab: Lab; height: number }) {
  // plotly draws the charts, and a report comes without it.
  if (lab.saved) {
    return (
      <div class="rt-bottom" style={{ height: `${height}px` }}>
        <section aria-label="Layers">
          <LayerTable lab={lab} />
        </section>
      </div>
    );
  }
  const wide = lab.width.value >= SIDE_BY_SIDE;
  const wanted = lab.study.view.value.tab;
  const tab: Tab = wide && wanted === "accuracy" ? "timing" : wanted;
  const tabs: Tab[] = wide ? ["timing", "table"] : ["timing", "accuracy", "table"];
  return (
    <div class="rt-bottom" style={{ height: `${height}px` }}>
      <section>
        <div class="rt-tabs" role="tablist" aria-label="Charts and table">
          {tabs.map((name) => (
            <button
              type="button"
              role="tab"
              key={name}
              data-tab={name}
              aria-selected={name === tab}
              onClick={() => lab.study.change({ tab: name })}
            >
              {LABELS[name]}
            </button>
          ))}
        </div>
        <Chart lab={lab} name="timing" hidden={tab !== "timing"} />
        {!wide && <Chart lab={lab} name="accuracy" hidden={tab !== "accuracy"} />}
        {tab === "table" && <LayerTable lab={lab} />}
      </section>
      {wide && (
        <section>
          <div class="rt-tabs">
            <button type="button" data-tab="accuracy" aria-current="true" tabIndex={-1} class="rt-heading">
              Accuracy
            </button>
          </div>
          <Chart lab={lab} name="accuracy" hidden={false} />
        </section>
      )}
    </div>
  );
}

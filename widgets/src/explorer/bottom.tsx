import type { RefObject } from "preact";
import { declared, drawnHere, segmentLabel, segmentTold } from "../panels/page";
import { Save } from "../ui/icons";
import { MoreMenu } from "../ui/menu";
import { TabList, TabRow } from "../ui/tabs";
import type { ExplorerState } from "./explorer_state";
import { LayerChart } from "./layer_chart";
import { LazyTab } from "./lazy_tab";
import { RandomBanner } from "./random_input";
import { saveFigures, visibleFigures } from "./save_figures";
import { StageStatuses } from "./stage_status";

const ORDER = "layers.order";
const ORDERS = ["step", "time"] as const;
const ORDER_LABELS = { step: "by execution order", time: "by time" };
const ORDER_TOLD = {
  step: "The bars are in execution order.",
  time: "The slowest layers come first.",
};

interface Props {
  explorer: ExplorerState;
  height: number;
  box: RefObject<HTMLDivElement | null>;
}

/** Charts and tables: a row of tabs, and the content of the open one. */
export function Bottom({ explorer, height, box }: Props) {
  const { tabs, tab, segments, segment } = explorer.page.value;
  const findingCount = explorer.findings.value?.items.length;
  const row = (
    <TabRow
      title="Charts and tables"
      names={tabs}
      name={tab}
      label={(name) =>
        name === "findings" && findingCount ? `${declared(name).label} ${findingCount}` : declared(name).label
      }
      help={(name) => [declared(name).told, name === tab && "A click folds it."].filter(Boolean).join("\n")}
      onPick={(name) => explorer.study.change({ tab: name === tab ? "" : name })}
    >
      {tab && (
        <MoreMenu
          label="Save the figures"
          help="The figures of the tab with their title and the sources of their numbers."
          name="picture"
          icon={<Save />}
          items={() =>
            (["svg", "png"] as const).map((format) => ({
              id: format,
              label: `Figures as ${format.toUpperCase()}`,
              reason: visibleFigures(explorer).length ? "" : "This tab shows no figure",
              pick: () => void saveFigures(explorer, format),
            }))
          }
        />
      )}
    </TabRow>
  );
  if (!tab) return <div class="rt-bottom rt-folded">{row}</div>;
  const { label, panels, part } = declared(tab);
  const order = explorer.study.view.value.settings[ORDER] === "time" ? "time" : "step";
  const late = panels.length && (!segment || drawnHere(segment)) ? "" : part;
  const wide = explorer.roomy.value;
  const choice = segments.length > 1 && segment && (
    <TabList
      class="rt-segments rt-small rt-parts"
      mark="segment"
      title={label}
      names={segments}
      name={segment}
      label={segmentLabel}
      help={segmentTold}
      onPick={(one) => explorer.set(tab, one)}
    />
  );
  const lead = (
    <>
      {choice}
      {tab === "accuracy" && <StageStatuses explorer={explorer} stages={["compared", "scored"]} />}
    </>
  );
  return (
    <div class="rt-bottom" style={{ flexBasis: `${height}px` }} ref={box}>
      {row}
      <div class="rt-under">
        <section aria-label={label}>
          {segment === "layers" && (
            <div class="rt-caption">
              {choice}
              {explorer.study.engine.value && (
                <TabList
                  class="rt-segments rt-small rt-parts"
                  mark="order"
                  title="Order of the layers"
                  names={ORDERS}
                  name={order}
                  label={(one) => ORDER_LABELS[one]}
                  help={(one) => ORDER_TOLD[one]}
                  onPick={(one) => explorer.set(ORDER, one)}
                />
              )}
              <StageStatuses explorer={explorer} stages={["timed"]} />
            </div>
          )}
          {segment === "errors" && <div class="rt-caption">{lead}</div>}
          <LayerChart
            explorer={explorer}
            name="timing"
            figure={order === "time" ? "longest" : "timing"}
            hidden={segment !== "layers"}
          />
          <RandomBanner explorer={explorer} hidden={segment !== "errors"} />
          {segment === "errors" && (
            <LayerChart explorer={explorer} name="accuracy" hidden={uncompared(explorer)} />
          )}
          {late && (
            <LazyTab
              key={`${late} ${segment}`}
              explorer={explorer}
              tab={late}
              props={segment ? { name: segment, choice: choice && lead } : {}}
            />
          )}
        </section>
        {wide && (
          <section aria-label={declared("accuracy").label} hidden={segment !== "layers"}>
            <div class={`rt-caption ${uncompared(explorer) ? "rt-alone" : ""}`}>
              <h4>{declared("accuracy").label}</h4>
              <StageStatuses
                explorer={explorer}
                stages={["compared", "scored"]}
                beside={!uncompared(explorer)}
              />
            </div>
            <RandomBanner explorer={explorer} hidden={segment !== "layers"} />
            <LayerChart
              explorer={explorer}
              name="accuracy"
              hidden={segment !== "layers" || uncompared(explorer)}
            />
          </section>
        )}
      </div>
    </div>
  );
}

const uncompared = (explorer: ExplorerState): boolean =>
  explorer
    .stageStatuses()
    .some(({ stage, state }) => stage === "compared" && !["done", "partial"].includes(state));

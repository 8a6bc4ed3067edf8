import type { Overlay } from "../core/contract";
import { ending, GLYPH, opsOf, plural, quantity, shorten, uncapitalised } from "../core/format";
import { layerPlace } from "../graph/aria_text";
import { sourceOf, worst } from "../graph/overlay";
import { Row, Section } from "../ui/section";
import { Terms } from "../ui/terms";
import type { ExplorerState } from "./explorer_state";

const WORST = 3;
const LONGEST = 28;

/** What to look at first while nothing is selected: the extremes of every overlay, and nodes without a layer. */
export function Overview({ explorer }: { explorer: ExplorerState }) {
  const { study } = explorer;
  const engine = study.engine.value;
  const missing = explorer.missingWords();
  const details = study.source.value?.details ?? [];
  return (
    <>
      <h3>{engine ? study.variantTitle(engine.variant) : "Nothing selected"}</h3>
      <p class="rt-quiet">
        <Terms
          text={
            study.modelless.value
              ? "Click a layer to see what it reads, writes and takes."
              : "Click a node to see the layer that runs it, or a layer to see its nodes."
          }
        />
      </p>
      {engine?.overlays.map((overlay) => (
        <Extremes key={overlay.id} explorer={explorer} overlay={overlay} />
      ))}
      {study.isLoading("layer") && <p class="rt-quiet">{study.loadingText("The numbers of the layers")}</p>}
      {details.length > 0 && (
        <Section title="Model">
          <dl>
            {details.map(({ key, value }) => (
              <Row key={key} name={key}>
                {shorten(value, 300)}
              </Row>
            ))}
          </dl>
        </Section>
      )}
      {missing.length > 0 && (
        <Section title="Nodes without a layer">
          {missing.map((words) => (
            <p key={words}>{words}</p>
          ))}
        </Section>
      )}
    </>
  );
}

function Extremes({ explorer, overlay }: { explorer: ExplorerState; overlay: Overlay }) {
  const side = Object.keys(overlay.layers).length ? "layer" : "node";
  const visible = explorer.study.visible(side);
  const extremes = visible && overlay.ranked ? worst(overlay, side, visible, WORST) : [];
  if (!extremes.length) return null;
  return (
    <Section title={`${overlay.best === "low" ? "Highest" : "Lowest"} ${uncapitalised(overlay.title)}`}>
      <dl class="rt-wide">
        {extremes.map(([id, reading]) => {
          const box = explorer.study.box(side, id);
          const place = layerPlace(explorer.study, side, id);
          return (
            <Row key={id} name={box?.title ?? id}>
              <button
                type="button"
                class="rt-link"
                title={shorten(box?.title ?? id, 300)}
                onClick={() => explorer.jump(side, id)}
              >
                {/* Several may be of the same operators. */}
                {place && `L${place.at} `}
                {box ? opsOf(box, 3) : id}
                {!place && box && ` ${ending(box.title, LONGEST)}`}
              </button>
              <span class={overlay.origin === "estimated" ? "rt-estimate" : ""} title={sourceOf(overlay)}>
                {GLYPH[overlay.origin]} {quantity(reading.value, overlay.unit)}
              </span>
              {reading.shared > 1 && <small>shared by {plural(reading.shared, side)}</small>}
              {reading.how && <small>{reading.how}</small>}
            </Row>
          );
        })}
      </dl>
    </Section>
  );
}

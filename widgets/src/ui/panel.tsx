import type { ComponentChildren } from "preact";
import type { Box, Port, Side } from "../contract";
import { GLYPH, NONE, plural, REASON_GLYPH, shorten, shortOp, withSpread } from "../format";
import type { Lab } from "../lab";
import { readings } from "../overlay";
import { layerPlace } from "../spoken";
import { HistogramView } from "./histogram";
import { Overview } from "./overview";

const MOST_LINKS = 60;
const LONGEST = 400;
const SHORT = 60;

/** Everything about what is selected: attributes, tensors, layer or nodes, numbers from every overlay, histogram. */
export function Panel({ lab }: { lab: Lab }) {
  const { study } = lab;
  const { anchor, selection, layers } = study.view.value;
  const ids = anchor === "node" ? selection : layers;
  const box = ids.length === 1 ? study.box(anchor, ids[0]!) : null;
  return (
    <aside class="rt-panel" aria-label="Details of the selection">
      {box ? (
        <One lab={lab} side={anchor} box={box} />
      ) : ids.length > 1 ? (
        <>
          <h3>{plural(ids.length, anchor)}</h3>
          <Jumps lab={lab} side={anchor} ids={ids} />
          <Section title={anchor === "node" ? "In layers" : "From nodes"}>
            <Jumps
              lab={lab}
              side={anchor === "node" ? "layer" : "node"}
              ids={anchor === "node" ? layers : selection}
            />
          </Section>
        </>
      ) : (
        <Overview lab={lab} />
      )}
    </aside>
  );
}

function One({ lab, side, box }: { lab: Lab; side: Side; box: Box }) {
  const histogram = side === "node" ? lab.study.engine.value?.histograms[box.id] : undefined;
  const streams = new Set(lab.study.engine.value?.graph.boxes.map(({ stream }) => stream));
  return (
    <>
      <h3 title={shorten(box.title, LONGEST)}>{shorten(box.title || box.op, LONGEST)}</h3>
      <p class="rt-quiet">
        {box.kind === "layer"
          ? !lab.study.graph("layer")?.boxes.includes(box)
            ? "sync step, not drawn"
            : box.slim
              ? "layout move"
              : "layer"
          : box.kind === "node"
            ? shorten(box.op, SHORT)
            : `graph ${box.kind}`}
        {box.kind === "layer" && box.precision ? ` · ${box.precision}` : ""}
        {box.kind === "layer" && streams.size > 1 ? ` · stream ${box.stream}` : ""}
      </p>
      {box.kind === "layer" ? (
        <FromNodes lab={lab} box={box} />
      ) : (
        box.kind === "node" && <InLayer lab={lab} box={box} />
      )}
      <Numbers lab={lab} side={side} box={box} />
      {box.details.length > 0 && (
        <Section title={box.kind === "layer" ? "Layer" : "Attributes"}>
          <dl>
            {box.details.map(({ key, value }) => (
              <Row key={key} name={key}>
                {shorten(value, LONGEST)}
              </Row>
            ))}
          </dl>
        </Section>
      )}
      <Ports title="Inputs" ports={box.inputs.filter(({ constant }) => !constant)} />
      <Ports title="Outputs" ports={box.outputs} />
      <Ports title="Weights" ports={box.inputs.filter(({ constant }) => constant)} />
      {histogram && <HistogramView histogram={histogram} />}
    </>
  );
}

function InLayer({ lab, box }: { lab: Lab; box: Box }) {
  const { study } = lab;
  const links = study.links.value;
  if (links.empty) return null;
  const missing = links.unmapped(box.id);
  if (missing) {
    return (
      <Section title="No layer">
        <p class="rt-reason">
          <b>{REASON_GLYPH[missing.reason]}</b> {missing.text || missing.reason}
        </p>
      </Section>
    );
  }
  return (
    <>
      {links.pairsOfNode(box.id).map(({ layer, evidence }) => {
        const place = layerPlace(study, layer);
        const others = links.nodesOf([layer]).filter((id) => id !== box.id);
        return (
          <Section key={layer} title={place ? `Layer ${place.at} of ${place.of}` : "Layer"}>
            <Jumps lab={lab} side="layer" ids={[layer]} />
            <p class={`rt-evidence ${evidence === "inferred" ? "rt-inferred" : ""}`}>
              {lab.evidenceWords(box.id, layer)}
            </p>
            {others.length > 0 && (
              <>
                <p class="rt-quiet">together with</p>
                <Jumps lab={lab} side="node" ids={others} />
              </>
            )}
          </Section>
        );
      })}
    </>
  );
}

function FromNodes({ lab, box }: { lab: Lab; box: Box }) {
  const pairs = lab.study.links.value.pairsOfLayer(box.id);
  const place = layerPlace(lab.study, box.id);
  const words = [...new Set(pairs.map(({ node }) => lab.evidenceWords(node, box.id)))];
  return (
    <Section
      title={`${place ? `Step ${place.at} of ${place.of}` : "Layer"} · ${plural(pairs.length, "node")}`}
    >
      {pairs.length ? (
        <>
          <Jumps lab={lab} side="node" ids={pairs.map(({ node }) => node)} />
          <p
            class={`rt-evidence ${pairs.some(({ evidence }) => evidence === "inferred") ? "rt-inferred" : ""}`}
          >
            {words.join("; ")}
          </p>
        </>
      ) : (
        <p class="rt-quiet">The compiler added this step; it stands for no node.</p>
      )}
    </Section>
  );
}

function Numbers({ lab, side, box }: { lab: Lab; side: Side; box: Box }) {
  const shown = (lab.study.engine.value?.overlays ?? []).flatMap((overlay) => {
    const reading = readings(overlay, side)[box.id];
    return reading ? [{ overlay, reading }] : [];
  });
  if (!shown.length) return null;
  return (
    <Section title="Numbers">
      <dl>
        {shown.map(({ overlay, reading }) => (
          <Row key={overlay.id} name={overlay.title}>
            <span
              class={`rt-number ${overlay.origin === "estimated" ? "rt-estimate" : ""}`}
              title={[`${overlay.origin}: ${overlay.source}`, reading.note].filter(Boolean).join("\n")}
            >
              {GLYPH[overlay.origin]} <b>{withSpread(reading.value, reading.spread, overlay.unit)}</b>
            </span>
            {reading.shared > 1 && <small>one number for {plural(reading.shared, side)} together</small>}
            {reading.note && <small title={reading.note}>{shorten(alone(reading.note), LONGEST)}</small>}
          </Row>
        ))}
      </dl>
    </Section>
  );
}

/** A note without its end that says how many share the number, which stands above it. */
const alone = (note: string): string => note.replace(/, together with \d+ other \w+$/, "");

function Ports({ title, ports }: { title: string; ports: Port[] }) {
  if (!ports.length) return null;
  return (
    <Section title={title}>
      {ports.map((port, i) => (
        <p class="rt-port" key={`${port.name}${i}`} title={shorten(port.name, LONGEST)}>
          <b>{port.shape || NONE}</b> {port.dtype} {port.format}
          <small>{shorten(port.name, LONGEST)}</small>
        </p>
      ))}
    </Section>
  );
}

export function Section({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section>
      <h4>{title}</h4>
      {children}
    </section>
  );
}

export function Row({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <>
      <dt title={name}>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

/** Boxes to jump to, each with its operator's colour. */
export function Jumps({ lab, side, ids }: { lab: Lab; side: Side; ids: readonly string[] }) {
  const theme = lab.bench.theme.value;
  return (
    <ul class="rt-jumps">
      {ids.slice(0, MOST_LINKS).map((id) => {
        const box = lab.study.box(side, id);
        const family = box?.chips[0]?.family ?? box?.family ?? "other";
        const chips = box?.kind === "layer" ? box.chips.slice(0, 4).map(({ op }) => shortOp(op)) : [];
        const name = box?.title || id;
        const ops = chips.length
          ? chips.join(" · ") + (box!.chips.length > 4 ? " …" : "")
          : shortOp(box?.op ?? "");
        return (
          <li key={id}>
            <button
              type="button"
              title={shorten(name, LONGEST)}
              onClick={() => lab.jump(side, id)}
              onPointerEnter={() => lab.study.point(side, id)}
              onPointerLeave={() => lab.study.point()}
            >
              <i style={{ background: theme.family[family] }} />
              <b>{ops}</b> <span>{name === ops ? "" : shorten(name, 120)}</span>
            </button>
          </li>
        );
      })}
      {ids.length > MOST_LINKS && <li class="rt-quiet">and {ids.length - MOST_LINKS} more</li>}
    </ul>
  );
}

import type { Box, Port, Role, Side } from "../core/contract";
import {
  colourOf,
  GLYPH,
  NONE,
  opsOf,
  plural,
  REASON_GLYPH,
  ROLE_WORDS,
  shorten,
  shortOp,
  titleOf,
  withSpread,
} from "../core/format";
import { SIDES, type Study } from "../core/state";
import { groupOf, layerPlace, noun } from "../graph/aria_text";
import { trace } from "../graph/highlight";
import { combined, engineSide, sourceOf } from "../graph/overlay";
import { TensorView } from "../ui/histogram";
import { useDelayed } from "../ui/hooks";
import { Close, Downstream, Path, Save, Upstream, Zoom } from "../ui/icons";
import { Row, Section } from "../ui/section";
import { Tool } from "../ui/tool";
import type { ExplorerState } from "./explorer_state";
import { Pinning } from "./node_precision";
import { Overview } from "./overview";
import { askFusion, fusionOf } from "./why";

interface IdsProps {
  explorer: ExplorerState;
  side: Side;
  ids: readonly string[];
}

interface BoxProps {
  explorer: ExplorerState;
  side: Side;
  box: Box;
}

const MOST_LINKS = 60;
const LONGEST = 400;
const SHORT = 60;
const MOST_ENDS = 8;
const OVERVIEW = "page.overview";
/** Boxes do not move away under a double click. */
const DOUBLE_CLICK_MS = 400;

/**
 * Everything about what is selected: attributes, tensors, layer or nodes, numbers from every overlay, histograms. Where
 * there is little width and nothing is selected it is a strip.
 */
export function Details({ explorer }: { explorer: ExplorerState }) {
  const { study } = explorer;
  const { anchor, settings } = study.view.value;
  const ids = study.selected(anchor);
  const box = ids.length === 1 ? study.box(anchor, ids[0]!) : null;
  const settled = useDelayed(ids.length > 0, DOUBLE_CLICK_MS);
  const opened = explorer.roomy.value || settings[OVERVIEW] === "open";
  if (!opened && !settled)
    return (
      <aside class="rt-panel rt-folded" aria-label="Details of the selection">
        <button
          type="button"
          aria-expanded={false}
          data-control="overview"
          title="Highest times, lowest accuracy, and the model. A selection opens it too."
          onClick={() => explorer.set(OVERVIEW, "open")}
        >
          Overview
        </button>
      </aside>
    );
  return (
    <aside class="rt-panel" aria-label="Details of the selection">
      {!explorer.roomy.value && !ids.length && (
        <Tool
          label="Fold the overview"
          help="Gives its room to the graphs."
          control="overview"
          extra="rt-fold"
          icon={<Close />}
          onClick={() => explorer.set(OVERVIEW, "")}
        />
      )}
      {box ? (
        <One explorer={explorer} side={anchor} box={box} />
      ) : ids.length > 1 ? (
        <Several explorer={explorer} side={anchor} ids={ids} />
      ) : (
        <Overview explorer={explorer} />
      )}
    </aside>
  );
}

function Several({ explorer, side, ids }: IdsProps) {
  const { study } = explorer;
  const group = groupOf(study, side, ids);
  const count = plural(ids.length, noun(side));
  const visible = study.visible(side);
  const at = (group && visible?.place.get(group.id)) ?? -1;
  const copies = (group && visible?.copies(group.id)) || 1;
  const about = group?.kind === "group" ? group.details.map(({ value }) => breakable(value)) : [];
  return (
    <>
      <h3 title={shorten(group?.title ?? "", LONGEST)}>{group ? breakable(titleOf(group)) : count}</h3>
      {group && (
        <p class="rt-quiet">
          {[copies > 1 ? `${count} in ${copies} equal blocks` : `group of ${count}`, ...about].join(" · ")}
        </p>
      )}
      <Actions explorer={explorer} side={side} ids={ids} />
      <Fusion explorer={explorer} side={side} />
      {group && visible?.foldable.has(at) && (
        <button type="button" class="rt-field" data-control="fold" onClick={() => study.toggle(group.id)}>
          {visible.frames.has(at) ? "Fold the group" : "Open the group"}
        </button>
      )}
      <Numbers explorer={explorer} side={side} ids={ids} group={group} copies={copies} />
      {group && group.kind !== "group" && <Attributes box={group} />}
      {side === "node" && (
        <Pinning explorer={explorer} boxes={explorer.selectedNodes().map((id) => study.box("node", id)!)} />
      )}
      <Section title={group ? "Members" : "Selected"}>
        <BoxLinks explorer={explorer} side={side} ids={ids} />
      </Section>
      {partners(study, side).map((other) => (
        <Section key={other} title={other === "node" ? "From nodes" : inWhere(study, other)}>
          <BoxLinks explorer={explorer} side={other} ids={study.selected(other)} />
        </Section>
      ))}
    </>
  );
}

const partners = (study: Study, side: Side): Side[] =>
  SIDES.filter((other) => other !== side && study.selected(other).length > 0);

const inWhere = (study: Study, side: Exclude<Side, "node">): string =>
  study.other.value ? `In layers of ${study.variantTitle(study.engineOf(side)?.variant)}` : "In layers";

const TRACES = [
  ["up", "Upstream (u)", "Highlights everything that the selection is computed from.", Upstream],
  ["down", "Downstream (d)", "Highlights everything that is computed from the selection.", Downstream],
  ["path", "Paths between two (p)", "Highlights everything between two selected boxes.", Path],
] as const;

function Actions({ explorer, side, ids }: IdsProps) {
  const { paneSet } = explorer;
  const nodes = explorer.selectedNodes();
  return (
    <div class="rt-actions" role="toolbar" aria-label="Actions">
      {TRACES.map(([way, label, help, Icon]) => (
        <Tool
          key={way}
          label={label}
          help={help}
          control={`trace-${way}`}
          icon={<Icon />}
          onClick={() => trace(paneSet, side, ids, way)}
        />
      ))}
      <Tool
        label="Zoom to the selection (z)"
        help="As large as it can be in its pane."
        control="zoom"
        icon={<Zoom />}
        onClick={() => paneSet.zoomToSelection(side)}
      />
      {!explorer.saved && (
        <Tool
          label={explorer.unusable() || "Save the nodes as ONNX"}
          help="The selected nodes as a model of their own, to build or to send alone."
          control="extract"
          disabled={!nodes.length || explorer.unusable() !== ""}
          icon={<Save />}
          onClick={() => explorer.send({ type: "extract", nodes })}
        />
      )}
    </div>
  );
}

function Fusion({ explorer, side }: { explorer: ExplorerState; side: Side }) {
  const question = fusionOf(explorer, side);
  if (!question) return null;
  const reason = explorer.busy();
  return (
    <button
      type="button"
      class="rt-field"
      data-control="why"
      disabled={reason !== ""}
      title={reason || "Parts of the model are built with one thing changed; it takes about a second"}
      onClick={() => askFusion(explorer, question)}
    >
      {question.label}
    </button>
  );
}

function One({ explorer, side, box }: BoxProps) {
  const { study } = explorer;
  const engine = study.engineOf(engineSide(side));
  const streams = new Set(engine?.graph.boxes.map(({ stream }) => stream));
  const layer = box.kind === "layer";
  const ports: [string, Port[]][] = [
    ["Inputs", box.inputs.filter(({ constant }) => !constant)],
    ["Outputs", box.outputs],
    ["Weights", box.inputs.filter(({ constant }) => constant)],
  ];
  const about = [
    layer
      ? !study.whole(side)?.boxes.includes(box)
        ? "sync entry, not drawn"
        : box.slim
          ? "overhead"
          : "layer"
      : box.kind === "node"
        ? shorten(box.op, SHORT)
        : `graph ${box.kind}`,
    layer && side === "other" && study.variantTitle(engine?.variant),
    layer && box.precision,
    layer && streams.size > 1 && `stream ${box.stream}`,
    box.body,
  ];
  return (
    <>
      <h3 title={shorten(box.title, LONGEST)}>{breakable(titleOf(box))}</h3>
      <p class="rt-quiet">{about.filter(Boolean).join(" · ")}</p>
      <Actions explorer={explorer} side={side} ids={[box.id]} />
      <Fusion explorer={explorer} side={side} />
      {layer ? (
        <FromNodes explorer={explorer} side={side} box={box} />
      ) : (
        box.kind === "node" &&
        ENGINES.map(
          (which) =>
            study.engineOf(which) && <InLayer key={which} explorer={explorer} side={which} box={box} />,
        )
      )}
      <Numbers explorer={explorer} side={side} ids={[box.id]} />
      {box.kind === "node" && <Pinning explorer={explorer} boxes={[box]} />}
      {study.isLoading(side) && <p class="rt-quiet">{study.loadingText("Its tensors and numbers")}</p>}
      <Attributes box={box} />
      {ports.map(([title, list]) => (
        <Ports key={title} explorer={explorer} side={side} box={box} title={title} ports={list} />
      ))}
      {box.id === explorer.inspected.value && !explorer.saved && (
        <Tensors explorer={explorer} node={box.id} />
      )}
    </>
  );
}

function Attributes({ box: { kind, details } }: { box: Box }) {
  if (!details.length) return null;
  return (
    <Section title={kind === "layer" ? "Layer" : "Attributes"}>
      <dl>
        {details.map(({ key, value }) => (
          <Row key={key} name={key}>
            {shorten(value, LONGEST)}
          </Row>
        ))}
      </dl>
    </Section>
  );
}

const ENGINES = ["layer", "other"] as const;

function InLayer({ explorer, side, box }: BoxProps & { side: (typeof ENGINES)[number] }) {
  const { study } = explorer;
  const links = study.mappingOf(side);
  const missing = links.unmapped(box.id);
  const of = study.other.value ? ` · ${study.variantTitle(study.engineOf(side)!.variant)}` : "";
  if (missing) {
    return (
      <Section title={`No layer${of}`}>
        <p class="rt-reason">
          <b>{REASON_GLYPH[missing.reason]}</b> {missing.text || missing.reason}
        </p>
      </Section>
    );
  }
  return (
    <>
      {links.pairsOfNode(box.id).map(({ layer, evidence, role }) => {
        const place = layerPlace(study, side, layer);
        const home = links.homeOf(layer);
        const others = links.nodesOf([layer]).filter((id) => !home.includes(id));
        return (
          <Section key={layer} title={`${place ? `Layer ${place.at} of ${place.of}` : "Layer"}${of}`}>
            <BoxLinks explorer={explorer} side={side} ids={[layer]} />
            {role !== "work" && <p>It {ROLE_WORDS[role]} this node.</p>}
            <p class={`rt-evidence ${evidence === "inferred" ? "rt-inferred" : ""}`}>
              {explorer.evidenceWords(side, box.id, layer)}
            </p>
            <OtherNodes explorer={explorer} words="together with" ids={home.filter((id) => id !== box.id)} />
            <OtherNodes
              explorer={explorer}
              words="and with a part of"
              ids={others.filter((id) => id !== box.id)}
            />
          </Section>
        );
      })}
    </>
  );
}

function OtherNodes({ explorer, words, ids }: Omit<IdsProps, "side"> & { words: string }) {
  if (!ids.length) return null;
  return (
    <>
      <p class="rt-quiet">{words}</p>
      <BoxLinks explorer={explorer} side="node" ids={ids} />
    </>
  );
}

function FromNodes({ explorer, side, box }: BoxProps) {
  const pairs = explorer.study.mappingOf(engineSide(side)).pairsOfLayer(box.id);
  const place = layerPlace(explorer.study, side, box.id);
  const nodesOf = (target: Role): string[] =>
    pairs.flatMap(({ node, role }) => (role === target ? node : []));
  const run = nodesOf("work");
  const served = [...new Set(pairs.map(({ role }) => role))].filter((role) => role !== "work");
  const words = [...new Set(pairs.map(({ node }) => explorer.evidenceWords(side, node, box.id)))];
  return (
    <Section
      title={`${place ? `Layer ${place.at} of ${place.of}` : "Layer"} · ${plural(run.length, "node")}`}
    >
      {pairs.length ? (
        <>
          <BoxLinks explorer={explorer} side="node" ids={run} />
          {served.map((role) => (
            <OtherNodes key={role} explorer={explorer} words={ROLE_WORDS[role]} ids={nodesOf(role)} />
          ))}
          <p
            class={`rt-evidence ${pairs.some(({ evidence }) => evidence === "inferred") ? "rt-inferred" : ""}`}
          >
            {words.join("; ")}
          </p>
        </>
      ) : (
        <p class="rt-quiet">The compiler added this layer; it runs no node.</p>
      )}
    </Section>
  );
}

function Numbers({ explorer, side, ids, group, copies }: IdsProps & { group?: Box | null; copies?: number }) {
  const numbers = (explorer.study.engineOf(engineSide(side))?.overlays ?? []).flatMap((overlay) => {
    const reading = combined(overlay, side, ids, group, copies);
    return reading ? [{ overlay, reading }] : [];
  });
  if (!numbers.length) return null;
  return (
    <Section title="Numbers">
      <dl>
        {numbers.map(({ overlay, reading }) => (
          <Row key={overlay.id} name={overlay.title}>
            <span
              class={`rt-number ${overlay.origin === "estimated" ? "rt-estimate" : ""}`}
              title={[sourceOf(overlay), reading.note].filter(Boolean).join("\n")}
            >
              {GLYPH[overlay.origin]} <b>{withSpread(reading.value, reading.spread, overlay.unit)}</b>
            </span>
            {reading.how && <small>{reading.how}</small>}
            {reading.shared > 1 && (
              <small>one number for {plural(reading.shared, noun(side))} together</small>
            )}
            {reading.note && <small title={reading.note}>{shorten(alone(reading.note), LONGEST)}</small>}
          </Row>
        ))}
      </dl>
    </Section>
  );
}

function Tensors({ explorer, node }: { explorer: ExplorerState; node: string }) {
  const inspection = explorer.inspection.value;
  if (inspection?.node !== node)
    return (
      <Section title="Tensors">
        <p class="rt-quiet" data-control="measuring">
          {explorer.unusable() || (explorer.isWaiting.value ? "waiting for the kernel…" : "measuring…")}
        </p>
      </Section>
    );
  return (
    <>
      {inspection.tensors.map((tensor) => (
        <TensorView key={tensor.kind + tensor.name} tensor={tensor} />
      ))}
      {inspection.note && (
        <Section title="Tensors">
          <p class="rt-quiet">{inspection.note}</p>
        </Section>
      )}
    </>
  );
}

const breakable = (name: string): string => shorten(name, LONGEST).replace(/[/_.]/g, "$&\u200b");

const alone = (note: string): string => note.replace(/, together with \d+ other \w+$/, "");

interface PortsProps extends BoxProps {
  title: string;
  ports: Port[];
}

function Ports({ explorer, side, box, title, ports }: PortsProps) {
  if (!ports.length) return null;
  const graph = explorer.study.whole(side);
  const [here, there] =
    title === "Outputs" ? (["source", "target"] as const) : (["target", "source"] as const);
  const at = graph?.boxes.indexOf(box);
  const joined = graph?.edges.filter((edge) => edge[here] === at) ?? [];
  return (
    <Section title={title}>
      {ports.map((port, i) => {
        const ends = new Set(joined.flatMap((edge) => (edge.value === port.name ? edge[there] : [])));
        return (
          <p class="rt-port" key={`${port.name}${i}`} title={shorten(port.name, LONGEST)}>
            <b>{port.shape || NONE}</b> {port.dtype} {port.format}
            <small>{shorten(port.name, LONGEST)}</small>
            {[...ends].slice(0, MOST_ENDS).map((end) => {
              const { id, op, title: name } = graph!.boxes[end]!;
              return (
                <button
                  type="button"
                  class="rt-link"
                  key={id}
                  title={shorten(name, LONGEST)}
                  onClick={() => explorer.jump(side, id)}
                >
                  {title === "Outputs" ? "→" : "←"} {shortOp(op)}
                </button>
              );
            })}
            {ends.size > MOST_ENDS && ` and ${ends.size - MOST_ENDS} more`}
          </p>
        );
      })}
    </Section>
  );
}

export function BoxLinks({ explorer, side, ids }: IdsProps) {
  const theme = explorer.paneSet.theme.value;
  return (
    <ul class="rt-jumps">
      {ids.slice(0, MOST_LINKS).map((id) => {
        const box = explorer.study.box(side, id);
        const family = box ? colourOf(box) : "other";
        const name = box?.title || id;
        const ops = box ? opsOf(box, 4) : "";
        return (
          <li key={id}>
            <button
              type="button"
              title={shorten(name, LONGEST)}
              onClick={() => explorer.jump(side, id)}
              onPointerEnter={() => explorer.study.point(side, id)}
              onPointerLeave={() => explorer.study.point()}
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

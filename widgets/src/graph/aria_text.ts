import type { Box, Overlay, Side } from "../core/contract";
import {
  nodesRunBy,
  plural,
  quantity,
  REASON_WORDS,
  ROLE_WORDS,
  shorten,
  uncapitalised,
} from "../core/format";
import type { Pointed, Study } from "../core/state";
import { combined, engineSide } from "./overlay";

const UNITS: Record<string, string> = {
  s: "seconds",
  ms: "milliseconds",
  µs: "microseconds",
  ns: "nanoseconds",
  dB: "decibel",
  "%": "percent",
  B: "bytes",
  KiB: "kibibytes",
  MiB: "mebibytes",
  GiB: "gibibytes",
};
const MOST_OPS = 4;
const LONGEST_NAME = 80;

/** The selection, or what the keyboard points at, as a sentence that a screen reader speaks. */
export function ariaText(study: Study, at: Pointed | null = null): string {
  const anchor = at?.side ?? study.view.value.anchor;
  const ids = at ? study.members(at.side, at.id) : study.selected(anchor);
  if (!ids.length) return "";
  const single = at?.id ?? (ids.length === 1 ? ids[0]! : "");
  const box = single ? study.box(anchor, single) : groupOf(study, anchor, ids);
  const copies = (box && study.visible(anchor)?.copies(box.id)) || 1;
  if (!box) return ids.length > 1 ? `${plural(ids.length, noun(anchor))} selected` : "";
  const about =
    box.kind === "group"
      ? `group of ${plural(ids.length, noun(anchor))}`
      : anchor === "node"
        ? ofNode(study, box)
        : ofLayer(study, anchor, box);
  const where =
    anchor === "other" ? `in ${study.variantTitle(study.other.value?.variant) || "another engine"}` : "";
  const numbers = (study.engineOf(engineSide(anchor))?.overlays ?? []).map((overlay) =>
    numberText(overlay, combined(overlay, anchor, ids, box)),
  );
  const same = copies > 1 && ids.length > 1 ? `the same in ${copies} blocks` : "";
  return [boxName(box), where, about, same, ...numbers].filter(Boolean).join(", ");
}

export const noun = (side: Side): string => (side === "node" ? side : "layer");

/** The innermost group, or box of a repeated block, whose members are exactly these boxes, folded or open. */
export function groupOf(study: Study, side: Side, ids: readonly string[]): Box | null {
  const visible = study.visible(side);
  if (!visible || !ids.length) return null;
  const target = new Set(ids);
  for (let at = visible.place.get(ids[0]!) ?? -1; at >= 0; at = visible.parent[at]!) {
    const box = visible.graph.boxes[at]!;
    const members = visible.members(box.id);
    if (members.length < 2) continue;
    if (members.length === target.size && members.every((id) => target.has(id))) return box;
    if (members.length > target.size) return null;
  }
  return null;
}

/** What a box is in words: a node has a name, a layer its operators, because a kernel's name says little aloud. */
export function boxName(box: Box): string {
  if (box.kind === "layer") {
    const more = box.chips.length - MOST_OPS;
    const ops = box.chips.slice(0, MOST_OPS).map(({ title }) => title);
    return `layer: ${ops.join(", ") || shorten(box.title, LONGEST_NAME)}${more > 0 ? ` and ${more} more` : ""}`;
  }
  return shorten(`${box.op} ${untitled(box)}`, LONGEST_NAME).trim();
}

export const untitled = ({ op, title }: Box): string =>
  title === op || title.startsWith(`${op} `) ? title.slice(op.length + 1) : title;

function ofNode(study: Study, box: Box): string {
  const links = study.mapping.value;
  const missing = links.unmapped(box.id);
  if (missing) return `no layer: ${REASON_WORDS[missing.reason]}`;
  const [pair] = links.pairsOfNode(box.id);
  if (!pair) return "";
  const others = links
    .homeOf(pair.layer)
    .filter((id) => id !== box.id)
    .flatMap((id) => study.box("node", id)?.op ?? []);
  const place = layerPlace(study, "layer", pair.layer);
  const where = place ? `in layer ${place.at} of ${place.of}` : "in a layer";
  const company = others.length > 3 ? [...others.slice(0, 3), `${others.length - 3} more`] : others;
  const withOthers = company.length
    ? ` with ${company.slice(0, -1).join(", ")}${company.length > 1 ? " and " : ""}${company.at(-1)}`
    : "";
  if (pair.role !== "work") return `${where} that ${ROLE_WORDS[pair.role]} it`;
  return where + withOthers + (pair.evidence === "inferred" ? ", inferred" : "");
}

function ofLayer(study: Study, side: Side, box: Box): string {
  const place = box.kind === "layer" && layerPlace(study, side, box.id);
  const layer = place ? `layer ${place.at} of ${place.of}` : "";
  const run = nodesRunBy(box).length;
  return [layer, run > 1 && `fused from ${plural(run, "node")}`].filter(Boolean).join(", ");
}

function numberText({ title, unit, origin }: Overlay, reading: { value: number } | null): string {
  if (!reading) return "";
  const [amount, ...words] = quantity(reading.value, unit).split(" ");
  return [uncapitalised(title), amount, ...words.map((word) => UNITS[word] ?? word), origin].join(" ");
}

/** The place of a layer in execution order, from 1. */
export function layerPlace(study: Study, side: Side, id: string): { at: number; of: number } | null {
  const boxes = study.engineOf(engineSide(side))?.graph.boxes ?? [];
  const layers = boxes.filter(({ kind }) => kind === "layer");
  const at = layers.findIndex((box) => box.id === id);
  return at < 0 ? null : { at: at + 1, of: layers.length };
}

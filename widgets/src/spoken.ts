import type { Box, Overlay } from "./contract";
import { number, plural, REASON_WORDS, shorten } from "./format";
import { readings } from "./overlay";
import type { Study } from "./state";

const UNITS: Record<string, string> = { ms: "milliseconds", dB: "decibel", "%": "percent", B: "bytes" };
const LONGEST_NAME = 80;

/** The selection, or what the keyboard points at, as a sentence that a screen reader speaks. */
export function spoken(study: Study): string {
  const { selection, layers, anchor } = study.view.value;
  const ids = anchor === "node" ? selection : layers;
  if (!ids.length) return "";
  if (ids.length > 1) return `${plural(ids.length, anchor)} selected`;
  const box = study.box(anchor, ids[0]!);
  if (!box) return "";
  const parts = [named(box), anchor === "node" ? ofNode(study, box) : ofLayer(box)];
  const numbers = (study.engine.value?.overlays ?? []).map((overlay) =>
    told(overlay, readings(overlay, anchor)[box.id]),
  );
  return [...parts, ...numbers].filter(Boolean).join(", ");
}

function named(box: Box): string {
  const name = box.title === box.op ? "" : ` ${box.title}`;
  return shorten(box.op + name, LONGEST_NAME);
}

function ofNode(study: Study, box: Box): string {
  const links = study.links.value;
  const missing = links.unmapped(box.id);
  if (missing) return `no layer: ${REASON_WORDS[missing.reason]}`;
  const [pair] = links.pairsOfNode(box.id);
  if (!pair) return "";
  const others = links
    .nodesOf([pair.layer])
    .flatMap((id) => (id === box.id ? [] : (study.box("node", id)?.op ?? [])));
  const place = layerPlace(study, pair.layer);
  const where = place ? `in layer ${place.at} of ${place.of}` : "in a layer";
  const company = others.length > 3 ? [...others.slice(0, 3), `${others.length - 3} more`] : others;
  const told = company.length
    ? ` with ${company.slice(0, -1).join(", ")}${company.length > 1 ? " and " : ""}${company.at(-1)}`
    : "";
  return where + told + (pair.evidence === "inferred" ? ", inferred" : "");
}

function ofLayer(box: Box): string {
  return box.chips.length > 1 ? `fused from ${plural(box.chips.length, "node")}` : "";
}

function told(overlay: Overlay, reading: { value: number } | undefined): string {
  if (!reading) return "";
  return `${number(reading.value)} ${UNITS[overlay.unit] ?? overlay.unit} ${overlay.origin}`.replace(
    / +/g,
    " ",
  );
}

/** The place of a layer in execution order, from 1. */
export function layerPlace(study: Study, id: string): { at: number; of: number } | null {
  const layers = (study.engine.value?.graph.boxes ?? []).filter(({ kind }) => kind === "layer");
  const at = layers.findIndex((box) => box.id === id);
  return at < 0 ? null : { at: at + 1, of: layers.length };
}

import type { Box, EngineView, Graph, Overlay } from "../src/contract";

export function box(part: Partial<Box> & { id: string }): Box {
  return {
    kind: "node",
    parent: -1,
    body: "",
    op: "Conv",
    family: "convolution",
    title: part.id,
    lines: [],
    chips: [],
    precision: "",
    stream: 0,
    slim: false,
    inputs: [],
    outputs: [],
    details: [],
    ...part,
  };
}

export function graph(id: string, boxes: Box[]): Graph {
  return { id, title: id, subtitle: "", boxes, edges: [] };
}

export function engineView(part: Partial<EngineView>): EngineView {
  return {
    variant: "fp32@sm86",
    graph: graph("engine", []),
    pairs: [],
    unmapped: [],
    overlays: [],
    calibrator: "",
    commands: [],
    precisions: {},
    quantized: [],
    ...part,
  };
}

export function overlay(part: Partial<Overlay>): Overlay {
  return {
    id: "time",
    title: "Time",
    unit: "ms",
    origin: "measured",
    source: "a CPU",
    best: "low",
    nodes: {},
    layers: {},
    ...part,
  };
}

export const reading = (value: number, shared = 1) => ({ value, spread: null, shared, note: "" });

/** The kernel's form of a payload, in which everything stands in the header. */
export async function packed(value: unknown): Promise<Uint8Array<ArrayBuffer>> {
  const none = [0, 0, 0];
  const header = { tree: ["value", value], strings: none, floats: none, templates: [] };
  const text = new TextEncoder().encode(JSON.stringify(header));
  const stream = new Blob([new Uint32Array([text.length]), text])
    .stream()
    .pipeThrough(new CompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

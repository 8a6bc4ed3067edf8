import type {
  Box,
  BuildStory,
  Chip,
  Decision,
  EngineView,
  Finding,
  Graph,
  Overlay,
  Panel,
  ReplayedStep,
  Summary,
} from "../src/core/contract";

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
    reads: "",
    writes: "",
    stream: 0,
    slim: false,
    inputs: [],
    outputs: [],
    details: [],
    ...part,
  };
}

export function variant(part: Partial<Chip> & { id: string }): Chip {
  return {
    label: part.id,
    about: "",
    choice: part.id,
    calibrator: "",
    target: "",
    status: "ready",
    baseline: false,
    recorded: false,
    predicted: false,
    nodes: 1,
    layers: 1,
    counted: "layer",
    estimate: null,
    estimate_gpu: "",
    estimate_source: "",
    time: null,
    time_source: "",
    score: null,
    score_delta: null,
    score_unit: "",
    score_worse: false,
    score_told: "",
    score_source: "",
    sqnr: null,
    sqnr_told: "",
    random: "",
    error: null,
    stages: [],
    ...part,
  };
}

export function graph(id: string, boxes: Box[]): Graph {
  return {
    id,
    title: id,
    subtitle: "",
    boxes,
    edges: [],
    repeats: [],
    folded: false,
    later: false,
    details: [],
  };
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
    panels: [],
    ...part,
  };
}

export function panel(part: Partial<Panel>): Panel {
  return {
    name: "memory",
    variant: "fp32",
    title: "",
    lead: "",
    settings: [],
    work: [],
    facts: [],
    figures: [],
    columns: [],
    rows: [],
    links: {},
    notes: [],
    problem: "",
    scripts: [],
    ...part,
  };
}

export function summary(part: Partial<Summary>): Summary {
  return {
    kinds: [],
    precisions: [],
    transitions: [],
    reformats: [],
    coverage: {
      nodes: 0,
      all_nodes: 0,
      explained: 0,
      layers: 0,
      all_layers: 0,
      moves: 0,
      declared: 0,
      pairs: 0,
    },
    processor: "",
    source: "",
    total: null,
    summed: null,
    ratio: null,
    ...part,
  };
}

export function finding(part: Partial<Finding> & { id: string }): Finding {
  return {
    rule: "",
    title: part.id,
    nodes: [],
    layers: [],
    microseconds: null,
    cost: "",
    fix: "",
    evidence: "",
    fixable: false,
    exact: false,
    samples: [],
    channels: [],
    ...part,
  };
}

/** A decision that joins nodes, unless it says otherwise. */
export function step(
  nodes: string[],
  { joins = true, ...part }: Partial<Decision & ReplayedStep> = {},
): ReplayedStep {
  return { decision: { action: "fuse", rule: "", text: "", line: 1, ...part }, joins, nodes, layer: "" };
}

export function story(part: Partial<BuildStory>): BuildStory {
  return {
    title: "",
    counts: [],
    passes: [],
    steps: [],
    attempts: 1,
    origin: "reported",
    contests: [],
    memory: [],
    notes: [],
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
    ranked: true,
    nodes: {},
    layers: {},
    ...part,
  };
}

export const reading = (value: number, shared = 1) => ({ value, spread: null, shared, note: "" });

/** The kernel's form of a payload. */
export async function packed(value: unknown): Promise<Uint8Array<ArrayBuffer>> {
  const stream = new Blob([JSON.stringify(value)]).stream().pipeThrough(new CompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

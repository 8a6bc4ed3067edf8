import { signal } from "@preact/signals";
import { describe, expect, it } from "vitest";
import type { StageStatus, Status } from "../src/core/contract";
import { Mapping } from "../src/core/mapping";
import type { ExplorerState } from "../src/explorer/explorer_state";
import { Overview } from "../src/explorer/overview";
import { StageStatuses } from "../src/explorer/stage_status";
import { StatusLine } from "../src/explorer/status_line";
import { LegendView } from "../src/graph/legend";
import type { Legend } from "../src/graph/overlay";
import type { PaneSet } from "../src/graph/paneset";
import { arrange, PLAIN } from "../src/graph/visible_graph";
import { elements, textOf } from "./elements";
import { box, engineView, graph, overlay, reading } from "./payloads";

describe("a legend", () => {
  const legend = (kind: Legend | null, mode = "time", reasons: string[] = []) =>
    LegendView({
      side: "node",
      paneSet: {
        study: { mapping: signal({ reasons: reasons.map((reason) => ({ reason })) }) },
        colours: { node: { look: signal({ legend: kind }), mode: signal(mode) } },
      } as unknown as PaneSet,
    });
  const classes = (...labels: [string, string][]): Legend => ({
    kind: "classes",
    title: "",
    classes: labels.map(([label, badge]) => ({ label, badge, colour: "#000000" })),
  });

  it("has a class by its sign and its name, once where the sign ends with the name", () => {
    const shown = legend(classes(["fp16", "fp16"], ["2", "S2"], ["view", "↷"]));
    const spans = elements(shown).flatMap(({ tag, props }) => (tag === "span" ? textOf(props.children) : []));
    expect(spans).toEqual(["fp16", "S2", "↷ view"]);
  });

  it("leads from the low end to the high one", () => {
    const [low, high] = elements(
      legend({ kind: "scale", title: "time", low: "1 ms", high: "9 ms", origin: "", stops: ["red", "blue"] }),
    ).flatMap(({ tag, props }) => (tag === "span" ? textOf(props.children) : []));
    expect([low, high]).toEqual(["1 ms", "9 ms"]);
  });

  it("names each reason for having no layer once, and none where colours do", () => {
    const text = textOf(legend(null, "time", ["view", "dead", "view"]));
    expect(text.match(/↷ view/g)).toHaveLength(1);
    expect(text).toContain("✕ dead");
    expect(legend(null, "reason", ["view"])).toBeNull();
    expect(legend(null)).toBeNull();
  });
});

describe("the status line", () => {
  const status = (text: string, warning = false): Status => ({ origin: "measured", text, warning }) as Status;
  const line = (width: number, sentence = "") =>
    StatusLine({
      explorer: {
        sentence: signal(sentence),
        width: signal(width),
        status: signal([status("a compiler; of a release"), status("a device", true), status("a runner")]),
      } as unknown as ExplorerState,
    });
  const spans = (width: number) =>
    elements(line(width)).flatMap(({ tag, props }) =>
      tag === "span" && props.class !== "rt-sentence" ? textOf(props.children) : [],
    );

  it("begins with what warns", () => {
    expect(spans(2000)).toEqual(["⚠ a device", "● a compiler; of a release", "● a runner"]);
  });

  it("counts what has no room, and tells all of it on demand", () => {
    expect(spans(200)).toEqual(["⚠ a device"]);
    const rest = elements(line(200));
    expect(rest.filter(({ tag }) => tag === "summary").map(({ props }) => textOf(props.children))).toEqual([
      "2 more",
    ]);
    expect(rest.filter(({ tag }) => tag === "li")).toHaveLength(3);
  });
});

describe("what to look at first", () => {
  const jumped: unknown[][] = [];
  const shown = (...overlays: ReturnType<typeof overlay>[]) => {
    const boxes = ["A", "B", "C", "D"].map((id) => box({ id, kind: "layer" }));
    const study = {
      engine: signal(engineView({ overlays })),
      source: signal(null),
      visible: () => arrange(graph("engine", boxes), PLAIN, null, new Mapping(null)),
      modelless: signal(false),
      view: signal({}),
      variantTitle: (name: string) => name,
      box: (_: string, id: string) => boxes.find((one) => one.id === id),
      isLoading: () => false,
      whole: () => null,
      engineOf: () => null,
    };
    const explorer = { study, missingWords: () => [], jump: (...at: unknown[]) => jumped.push(at) };
    return elements(Overview({ explorer: explorer as unknown as ExplorerState }));
  };
  const layers = { A: reading(1), B: reading(9), C: reading(5), D: reading(7) };

  it.each([
    ["low", "Highest", ["B", "D", "C"]],
    ["high", "Lowest", ["A", "C", "D"]],
  ] as const)("are the three worst layers where %s is best", (best, word, ids) => {
    const all = shown(overlay({ best, layers }));
    const heads = all.flatMap(({ tag, props }) => (tag === "h4" ? textOf(props.children) : []));
    expect(heads[0]).toMatch(new RegExp(`^${word}`));
    jumped.length = 0;
    for (const { tag, props } of all)
      if (tag === "button" && props.class === "rt-link") (props.onClick as () => void)();
    expect(jumped).toEqual(ids.map((id) => ["layer", id]));
  });
});

describe("how far stages came", () => {
  const standing = (state: StageStatus["state"], more: boolean, text = ""): StageStatus =>
    ({ stage: "timed", state, more, text, basis: "2 samples" }) as StageStatus;
  const shown = (list: StageStatus[], part: object = {}) =>
    StageStatuses({
      stages: ["timed"],
      explorer: {
        stageStatuses: () => list,
        saved: false,
        busy: () => "",
        study: { kernelState: signal("free") },
        ...part,
      } as unknown as ExplorerState,
    });
  const buttons = (list: StageStatus[], part?: object) =>
    elements(shown(list, part)).filter(({ tag }) => tag === "button").length;

  it("is left out where all is done, and offers to go on where more can be measured", () => {
    expect(shown([standing("done", false)])).toBeNull();
    expect(shown([{ ...standing("waiting", true), stage: "scored" }])).toBeNull();
    expect(buttons([standing("done", true)])).toBe(1);
    expect(buttons([standing("partial", false, "stopped")])).toBe(0);
    expect(buttons([standing("done", true)], { saved: true })).toBe(0);
  });
});

// @vitest-environment happy-dom
import { signal } from "@preact/signals";
import { h, render } from "preact";
import { act } from "preact/test-utils";
import { expect, it, vi } from "vitest";
import type { ExplorerState } from "../src/explorer/explorer_state";
import { PresentationBar, StepList } from "../src/explorer/presentation_view";

const steps = ["first", "", "third"].map((words) => ({ words, view: {}, places: {} }));

/** The steps of a presentation, in a report or in a notebook, with what is asked of it. */
async function drawn(component: typeof StepList | typeof PresentationBar, saved: boolean, at = 1) {
  const asked: unknown[][] = [];
  const calls = ["play", "record", "key", "toggle", "change"];
  const presentation = {
    steps: signal(steps),
    at: signal(at),
    caption: signal(""),
    listing: signal(true),
    on: signal(false),
    ...Object.fromEntries(calls.map((name) => [name, (...given: unknown[]) => asked.push([name, ...given])])),
  };
  const root = document.createElement("div");
  const fullscreen = { on: signal(false), unavailable: "", toggle: vi.fn() };
  const choice = signal({ model: "models/net" });
  const explorer = { presentation, saved, fullscreen, choice, paneSet: { root } } as unknown as ExplorerState;
  await act(() => render(h(component, { explorer }), root));
  return { root, asked };
}

it("in a report each step plays itself, and the one that is shown is marked", async () => {
  const { root, asked } = await drawn(StepList, true);
  const items = [...root.querySelectorAll("li")];
  expect(items.map((item) => item.getAttribute("aria-current"))).toEqual([null, "step", null]);
  expect(items.map((item) => item.textContent)).toEqual(["1first", "2(no sentence)", "3third"]);
  for (const item of items) await act(() => item.querySelector("button")!.click());
  expect(asked).toEqual([
    ["play", 0],
    ["play", 1],
    ["play", 2],
  ]);
});

it("in a notebook each line has its buttons", async () => {
  const { root, asked } = await drawn(StepList, false);
  const lines = [...root.querySelectorAll("[data-step]")];
  expect(lines).toHaveLength(3);
  for (const line of lines)
    for (const button of line.querySelectorAll<HTMLButtonElement>("button")) {
      const disabled = button.disabled || button.getAttribute("aria-disabled") === "true";
      asked.push([
        line.getAttribute("data-step"),
        button.dataset.control,
        button.title || button.getAttribute("aria-label"),
        disabled,
      ]);
      if (!disabled) await act(() => button.click());
    }
  await expect(`${asked.map((call) => JSON.stringify(call)).join("\n")}\n`).toMatchFileSnapshot(
    "golden/steps.txt",
  );
});

it.each([
  [0, [true, false], "1 / 3"],
  [1, [false, false], "2 / 3"],
  [2, [false, true], "3 / 3"],
])("while one presents, step %i has the ways on and back", async (at, ends, said) => {
  const { root, asked } = await drawn(PresentationBar, false, at);
  const tools = ["step-before", "step-next"].map(
    (name) => root.querySelector<HTMLButtonElement>(`[data-control="${name}"]`)!,
  );
  expect(tools.map((tool) => tool.disabled || tool.getAttribute("aria-disabled") === "true")).toEqual(ends);
  expect(root.querySelector(".rt-quiet")!.textContent).toBe(said);
  expect(root.querySelector('[data-control="words"]')!.textContent).toBe("net");
  for (const tool of tools) await act(() => tool.click());
  const keys = [
    ["play", at - 1],
    ["play", at + 1],
  ];
  expect(asked).toEqual(keys.filter((_, i) => !ends[i]));
});

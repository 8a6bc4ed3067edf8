// @vitest-environment happy-dom
import { h, render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { listenForKeys } from "../src/core/keys";
import { Select } from "../src/ui/select";

let root: HTMLElement;
let end: AbortController;
beforeEach(() => {
  root = document.body.appendChild(document.createElement("div"));
  end = new AbortController();
  listenForKeys(root, end.signal);
});
afterEach(() => {
  render(null, root);
  end.abort();
  root.remove();
});

const options = ["fp32 · single", "fp16", "int8", "fp8"].map((label) => ({
  id: label.slice(0, 4),
  label,
  reason: label === "int8" || label === "fp8" ? "no data" : "",
}));

/** A select with what was picked, its button, its items and its keys. */
async function shown(more: object = {}) {
  const onPick = vi.fn();
  const props = { label: "Precision", help: "It rounds.", name: "precision", value: "fp16", options, onPick };
  await act(() => render(h(Select, { ...props, ...more }), root));
  const button = root.querySelector("button")!;
  const items = () => [...root.querySelectorAll("li")];
  return {
    onPick,
    button,
    items,
    open: () => act(() => button.click()),
    key: (key: string) =>
      act(
        () => void button.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, composed: true })),
      ),
    at: () => items().findIndex((item) => item.className.includes("rt-at")),
  };
}

it("picks an option that is clicked, and none that has a reason or is chosen already", async () => {
  for (const [i, picked] of [
    [0, [["fp32"]]],
    [1, []],
    [2, []],
    [3, []],
  ] as const) {
    const select = await shown();
    await select.open();
    expect(select.items().map((item) => item.getAttribute("aria-disabled"))).toEqual([
      "false",
      "false",
      "true",
      "true",
    ]);
    expect(select.items().map((item) => item.getAttribute("aria-selected"))).toEqual([
      "false",
      "true",
      "false",
      "false",
    ]);
    await act(() => select.items()[i]!.click());
    expect(select.onPick.mock.calls).toEqual(picked);
    // It stays open where nothing could be picked, so that the reason can be read.
    expect(select.items().length > 0).toBe(i >= 2);
    render(null, root);
  }
});

it("goes through its options with keys, around both ends, and to a letter", async () => {
  const select = await shown();
  await select.key("ArrowDown");
  expect(select.at()).toBe(1);
  for (const [key, at] of [
    ["ArrowDown", 2],
    ["ArrowDown", 3],
    ["ArrowDown", 0],
    ["ArrowUp", 3],
    ["i", 2],
    ["F", 0],
    ["x", 0],
  ] as const) {
    await select.key(key);
    expect([key, select.at()]).toEqual([key, at]);
  }
  await select.key("i");
  await select.key("Enter");
  expect(select.onPick).not.toHaveBeenCalled();
  await select.key("f");
  await select.key(" ");
  expect(select.onPick.mock.calls).toEqual([["fp32"]]);
  expect(select.items()).toEqual([]);
});

it("does not open where it is disabled, and tells why; brief, it shows a name's first part", async () => {
  const select = await shown({ disabled: "Nothing is built.", value: "fp32", brief: true, prefix: "as" });
  await select.open();
  await select.key("ArrowDown");
  expect(select.items()).toEqual([]);
  expect(select.button.title).toBe("Nothing is built.");
  expect(select.button.textContent).toBe("asfp32");
  const free = await shown({ value: "nothing" });
  expect(free.button.getAttribute("aria-label")).toBe("Precision: none");
  await free.open();
  expect(free.at()).toBe(0);
  await free.key("Escape");
  expect(free.items()).toEqual([]);
});

it("closes at a press beside it, and not at one in it", async () => {
  const select = await shown();
  const press = (on: Element) =>
    act(() => void on.dispatchEvent(new PointerEvent("pointerdown", { bubbles: true, composed: true })));
  await select.open();
  await press(select.items()[2]!);
  expect(select.items()).toHaveLength(4);
  await press(document.body);
  expect(select.items()).toEqual([]);
});

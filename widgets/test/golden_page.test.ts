// @vitest-environment happy-dom
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { TABS } from "../src/core/contract";
import { lines, type Name, open, type Page, stubBrowser } from "./page";

beforeAll(stubBrowser);

/** Studies, and the tabs of which another study shows more. */
const STUDIES: [Name, string][] = [
  ["written", "accuracy calibration recipe"],
  ["two_outputs", "fusion memory streams tuning engine build"],
  ["control_flow", "timing compare fusion memory streams tuning accuracy calibration findings recipe"],
];
const golden = (name: string, text: string) => expect(text).toMatchFileSnapshot(`golden/${name}.txt`);

describe.each(STUDIES)("the page of %s", (name, poor) => {
  let page: Page;
  beforeAll(async () => {
    page = await open(name);
  });
  afterAll(() => page.close());

  it.each(TABS.map(({ name }) => name))("has in the tab %s what the file says", async (tab) => {
    if (poor.includes(tab) || !page.root.querySelector(`[data-tab="${tab}"]`)) return;
    await page.click(`[data-tab="${tab}"]`);
    const segments = [...page.root.querySelectorAll<HTMLElement>(".rt-under [data-segment]")];
    let text = "";
    for (const segment of segments.length ? segments.map(({ dataset }) => dataset.segment) : [""]) {
      if (segment) await page.click(`[data-segment="${segment}"]`);
      const under = page.find(".rt-under").cloneNode(true) as Element;
      if (text) for (const again of under.querySelectorAll(".rt-parts")) again.remove();
      text += lines(under);
    }
    await golden(`${name}/tab-${tab}`, text);
  });

  if (name === "control_flow") return;

  it("has around its charts and tables what the file says", async () => {
    const whole = page.root.cloneNode(true) as Element;
    whole.querySelector(".rt-under")!.remove();
    await golden(`${name}/page`, lines(whole));
  });

  it("has the menus of the file", async () => {
    let text = "";
    for (const [at, button] of [...page.root.querySelectorAll<HTMLElement>("[aria-haspopup]")].entries()) {
      button.click();
      await page.rest();
      const popup = page.root.querySelector(".rt-popup:is([role=menu], :has([role=listbox]))");
      text += `${at} ${button.getAttribute("aria-label")}\n${popup ? lines(popup, " ") : " none\n"}`;
      button.click();
      await page.rest();
    }
    await golden(`${name}/menus`, text);
  });
});

// @vitest-environment happy-dom
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { TABS } from "../src/contract";
import { lines, type Name, open, type Page, stubBrowser } from "./page";

beforeAll(stubBrowser);

const STUDIES: Name[] = ["written", "two_outputs"];
const golden = (name: string, text: string) => expect(text).toMatchFileSnapshot(`golden/${name}.txt`);

describe.each(STUDIES)("the page of %s", (name) => {
  let page: Page;
  beforeAll(async () => {
    page = await open(name);
  });
  afterAll(() => page.close());

  it("has around its charts and tables what the file says", async () => {
    const whole = page.root.cloneNode(true) as Element;
    whole.querySelector(".rt-under")!.remove();
    await golden(`${name}/page`, lines(whole));
  });

  it.each(TABS.map(({ name }) => name))("has in the tab %s what the file says", async (tab) => {
    if (!page.root.querySelector(`[data-tab="${tab}"]`)) return;
    await page.click(`[data-tab="${tab}"]`);
    const segments = [...page.root.querySelectorAll<HTMLElement>(".rt-under [data-segment]")];
    let text = "";
    for (const { dataset } of segments.length ? segments : [{ dataset: { segment: "" } }]) {
      if (dataset.segment) await page.click(`[data-segment="${dataset.segment}"]`);
      text += lines(page.find(".rt-under"));
    }
    await golden(`${name}/tab-${tab}`, text);
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

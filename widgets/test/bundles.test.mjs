// What the page's code weighs, computed from the build: whoever makes it heavier moves something into a part of its own.
import { gzipSync } from "node:zlib";
import { beforeAll, expect, test } from "vitest";
import { noticed } from "../notices.mjs";
import { divided, here, scripts } from "../parts.mjs";
import { TABS } from "../src/core/contract";

const KB = 1000;
/** The part of plotly that draws a report's figures. */
const FIGURES = "figures.js";
let made;
beforeAll(async () => {
  ({ made } = await noticed(await scripts(), here));
});

test("all scripts together are at most 420 KB, and the largest at most 95 KB gzipped", () => {
  const ours = made.filter(({ name }) => name !== FIGURES);
  const bytes = ours.map(({ text }) => Buffer.byteLength(text));
  expect(bytes.reduce((sum, one) => sum + one, 0)).toBeLessThanOrEqual(420 * KB);
  expect(Math.max(...ours.map(({ text }) => gzipSync(text, { level: 9 }).length))).toBeLessThanOrEqual(
    95 * KB,
  );
  // A report brings it along, and no page of a notebook gets it.
  const { text } = made.find(({ name }) => name === FIGURES);
  expect(gzipSync(text, { level: 9 }).length).toBeLessThanOrEqual(520 * KB);
});

test("no file is in two scripts of a page", async () => {
  const { home } = await divided();
  const parts = made.filter(({ name }) => !["loader.js", "inline.js"].includes(name));
  const found = new Map();
  for (const { name, files } of parts)
    for (const file of files.filter((one) => home.has(one)))
      found.set(file, [...(found.get(file) ?? []), name]);
  expect(found.size).toBeGreaterThan(80);
  expect([...found].filter(([, names]) => new Set(names).size > 1)).toEqual([]);
  expect(found.get("src/explorer/explorer_state.ts")).toEqual(["explorer.js"]);
  expect(found.get("src/core/state.ts")).toEqual(["core.js"]);
});

test("what a part requires of another one is there", () => {
  const given = new Map(made.map(({ name, text }) => [name, text]));
  const wanted = made.flatMap(({ text }) => [...text.matchAll(/require\("([\w-]+\.js):([^"]+)"\)/g)]);
  expect(wanted.length).toBeGreaterThan(20);
  for (const [, part, file] of wanted) expect(given.get(part)).toContain(`"${file}"`);
});

test("every tab is a part of its own, and the graph alone needs none of them", () => {
  const names = made.map(({ name }) => name).filter((name) => name.startsWith("tab-"));
  const declared = new Set(TABS.flatMap(({ part }) => (part ? [`tab-${part}.js`] : [])));
  expect(new Set(names)).toEqual(declared);
  expect(names.length).toBeGreaterThan(5);
  expect(made.find(({ name }) => name === "graph.js").text).not.toMatch(/require\("(explorer|tab)/);
});

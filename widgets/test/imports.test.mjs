// No file of the page's code is in a circle of imports, those of types included: what stands below can be read alone.
import { existsSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { dirname, join, normalize } from "node:path";
import { expect, test } from "vitest";
import { here } from "../parts.mjs";

const IMPORT = /^(?:import|export)[^;"]*?from "(\.[^"]+)"|^import "(\.[^"]+)"/gm;

async function imports() {
  const root = join(here, "src");
  const files = (await readdir(root, { recursive: true })).filter((file) => /\.tsx?$/.test(file));
  const found = new Map();
  for (const file of files) {
    const text = await readFile(join(root, file), "utf8");
    const named = [...text.matchAll(IMPORT)].map(([, from, bare]) => join(dirname(file), from ?? bare));
    const known = named.flatMap((one) =>
      [`${one}.ts`, `${one}.tsx`].filter((path) => existsSync(join(root, path))),
    );
    found.set(file, known.map(normalize));
  }
  return found;
}

/** What is left once files that import only what was taken away are taken away, again and again. */
function circles(graph) {
  const left = new Map(graph);
  for (let before = -1; before !== left.size; ) {
    before = left.size;
    for (const [file, from] of left) if (!from.some((one) => left.has(one))) left.delete(file);
  }
  return [...left.keys()];
}

test("files import each other in one direction", async () => {
  const graph = await imports();
  expect(graph.get("explorer/explorer.tsx")).toContain("explorer/explorer_state.ts");
  expect(circles(graph)).toEqual([]);
});

test("a circle would be found", () => {
  const graph = new Map([
    ["a", ["b"]],
    ["b", ["c"]],
    ["c", ["b"]],
    ["d", []],
  ]);
  expect(circles(graph)).toEqual(["a", "b", "c"]);
});

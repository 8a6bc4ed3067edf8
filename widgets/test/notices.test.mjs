// The notices of packages that the bundles carry: found, grouped by their terms, and refused where nobody decided.
import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { banner, licensed, packagesOf } from "../notices.mjs";

async function folder(license, text) {
  const made = await mkdtemp(join(tmpdir(), "notices-"));
  await writeFile(join(made, "package.json"), JSON.stringify({ name: "some", version: "1.2.3", license }));
  if (text !== undefined) await writeFile(join(made, "LICENSE.md"), text);
  return made;
}

test("a package is found wherever it lies, once, and our own files are none", () => {
  const files = [
    "src/graph/graph.tsx",
    "node_modules/preact/dist/preact.mjs",
    "node_modules/preact/hooks/dist/hooks.mjs",
    "node_modules/@preact/signals/node_modules/@preact/core/a.js",
  ];
  const expected = ["node_modules/@preact/signals/node_modules/@preact/core", "node_modules/preact"];
  expect(packagesOf(files)).toEqual(expected);
});

test("terms stand once, below everybody whose terms they are", async () => {
  const a = await licensed(
    await folder("MIT", "The MIT License (MIT)\n\nCopyright (c) 2015 A\n\nDo as\nyou like."),
  );
  const b = await licensed(
    await folder("MIT", "Copyright (c) 2020 B\nCopyright (c) 2021 C\r\n\r\nDo as you like."),
  );
  const c = await licensed(await folder("ISC", "Copyright (c) 2022 D\n\nDo not sue. */"));
  const expected =
    "/*! Parts of this file:\nsome 1.2.3 (MIT), Copyright (c) 2015 A\n" +
    "some 1.2.3 (MIT), Copyright (c) 2020 B, Copyright (c) 2021 C\nDo as you like.\n\n" +
    "some 1.2.3 (ISC), Copyright (c) 2022 D\nDo not sue. * /\n*/\n";
  expect(banner([a, b, c])).toBe(expected);
});

test("what nobody decided to carry ends the build", async () => {
  await expect(licensed(await folder("GPL-3.0-only", "x"))).rejects.toThrow(
    'some 1.2.3 is under "GPL-3.0-only"',
  );
  await expect(licensed(await folder("MIT"))).rejects.toThrow("some 1.2.3 has no licence file");
});

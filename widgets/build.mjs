// Writes the page's code to ../rtlab/static, each script with the notices of what it carries; no network import.
import { mkdir, readdir, rm, watch, writeFile } from "node:fs/promises";
import { join } from "node:path";
import * as esbuild from "esbuild";
import { noticed } from "./notices.mjs";
import { here, scripts, shared, workerSource } from "./parts.mjs";

const outdir = join(here, "..", "rtlab", "static");

async function build() {
  const { made, notices } = await noticed(await scripts(), here);
  await mkdir(outdir, { recursive: true });
  const names = new Set(made.map(({ name }) => name));
  for (const old of await readdir(outdir))
    if (old.endsWith(".js") && !names.has(old)) await rm(join(outdir, old));
  for (const { name, text } of made) await writeFile(join(outdir, name), text);
  await writeFile(join(outdir, "NOTICES.txt"), notices);
  const sizes = made.map(({ name, text }) => `${name} ${Math.ceil(text.length / 1000)} KB`);
  console.log(sizes.join(", "));
}

/** The page for measurements is no part of the package. */
async function bench() {
  const { outputFiles } = await esbuild.build({
    ...shared,
    entryPoints: [join(here, "bench", "bench.ts")],
    outfile: "bench.js",
    format: "esm",
    plugins: [workerSource()],
  });
  const [script, style] = [".js", ".css"].map(
    (end) => outputFiles.find(({ path }) => path.endsWith(end)).text,
  );
  const dress = `document.head.appendChild(document.createElement("style")).textContent=${JSON.stringify(style)};\n`;
  await mkdir(join(here, "bench", "dist"), { recursive: true });
  await writeFile(join(here, "bench", "dist", "bench.js"), dress + script);
}

if (process.argv.includes("--bench")) await bench();
else await build();
if (process.argv.includes("--watch")) {
  let due;
  for await (const _ of watch(join(here, "src"), { recursive: true })) {
    clearTimeout(due);
    // One save tells of several changes.
    due = setTimeout(() => build().catch((error) => console.error(error.message)), 100);
  }
}

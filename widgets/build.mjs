// Writes the page's code to ../rtlab/static, each script with the notices of what it carries; no network import.
import { createHash } from "node:crypto";
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
  await labExtension();
  const sizes = made.map(({ name, text }) => `${name} ${Math.ceil(text.length / 1000)} KB`);
  console.log(sizes.join(", "));
}

/** JupyterLab's extension, as it lies in share/jupyter/labextensions; a new name has every browser fetch it. */
async function labExtension() {
  const { outputFiles } = await esbuild.build({
    ...shared,
    entryPoints: [join(here, "src", "lab", "lab.ts")],
    outfile: "lab.js",
    format: "iife",
  });
  const { text } = outputFiles[0];
  const name = `static/remoteEntry.${createHash("sha256").update(text).digest("hex").slice(0, 12)}.js`;
  const folder = join(outdir, "labextensions", "rtlab");
  await rm(folder, { recursive: true, force: true });
  await mkdir(join(folder, "static"), { recursive: true });
  await writeFile(join(folder, name), text);
  const about = {
    name: "rtlab",
    version: "0.1.0",
    jupyterlab: { _build: { load: name, extension: "./extension" } },
  };
  await writeFile(join(folder, "package.json"), `${JSON.stringify(about, null, 2)}\n`);
  const owner = {
    packageManager: "python",
    packageName: "rtlab",
    uninstallInstructions: "pip uninstall rtlab",
  };
  await writeFile(join(folder, "install.json"), `${JSON.stringify(owner, null, 2)}\n`);
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

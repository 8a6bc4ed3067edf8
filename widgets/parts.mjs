// Bundles the page's code: parts that a page gets one at a time, as CommonJS modules, and the two scripts that hold them
// together, the loader of a saved notebook and what stands before the parts of a report.
import { readdir, readFile } from "node:fs/promises";
import { basename, dirname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

export const here = dirname(fileURLToPath(import.meta.url));

export const shared = {
  absWorkingDir: here,
  bundle: true,
  minify: true,
  target: "es2022",
  // Our own notices stand at the head of every bundle.
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
  write: false,
  metafile: true,
  logLevel: "warning",
};

/** `import source from "worker:./file"` gives the text of the worker's bundle; its files are added to `inner`. */
export function workerSource(inner = new Map()) {
  return {
    name: "worker-source",
    setup(build) {
      build.onResolve({ filter: /^worker:/ }, (args) => ({
        path: join(args.resolveDir, args.path.slice("worker:".length)),
        namespace: "worker",
      }));
      build.onLoad({ filter: /.*/, namespace: "worker" }, async ({ path }) => {
        const { outputFiles, metafile } = await esbuild.build({
          ...shared,
          entryPoints: [path],
          format: "iife",
        });
        inner.set(`worker:${path}`, Object.keys(metafile.inputs));
        return { contents: outputFiles[0].text, loader: "text" };
      });
    },
  };
}

/** The file of a module by its path here, without what tells its kind; one of a package by what it is imported as. */
const named = (path) =>
  relative(here, path)
    .replaceAll(sep, "/")
    .replace(/\.tsx?$/, "")
    .replace(/^node_modules\/(.*)\/dist\/.*$/, "$1");

/** The files that an entry reaches. */
async function reached(entry) {
  const { metafile } = await esbuild.build({
    ...shared,
    entryPoints: [entry],
    outfile: "out.js",
    format: "esm",
    minify: false,
    plugins: [workerSource()],
  });
  return new Set(Object.keys(metafile.inputs).map((file) => file.replace(/^worker:/, "")));
}

/**
 * Which part a file stands in. What both widgets reach is the core, and what several tabs reach comes with the Explorer.
 * @returns {Promise<{entries: Map<string, string>, home: Map<string, string>}>} the entry of each part, the part of each file
 */
export async function divided() {
  const tabs = (await readdir(join(here, "src/panels"))).filter((name) => name.endsWith(".tsx"));
  const entries = new Map([
    ["core", "src/core/entry.ts"],
    ["explorer", "src/explorer/explorer.tsx"],
    ["graph", "src/graph/graph.tsx"],
    ["report", "src/report/report.tsx"],
    ...tabs.sort().map((name) => [`tab-${name.slice(0, -".tsx".length)}`, `src/panels/${name}`]),
  ]);
  const files = new Map(
    await Promise.all([...entries].map(async ([part, entry]) => [part, await reached(entry)])),
  );
  const home = new Map();
  for (const file of files.get("core")) home.set(file, "core");
  for (const file of files.get("graph")) if (files.get("explorer").has(file)) home.set(file, "core");
  for (const file of files.get("explorer")) if (!home.has(file)) home.set(file, "explorer");
  const seen = new Set();
  for (const [part, own] of files) {
    if (!part.startsWith("tab-")) continue;
    for (const file of own) {
      if (seen.has(file) && !home.has(file)) home.set(file, "explorer");
      seen.add(file);
    }
  }
  for (const [part, own] of files) for (const file of own) if (!home.has(file)) home.set(file, part);
  return { entries, home };
}

/** Leaves files of other parts out, and notes in `wanted` which are needed of each. */
function apart(part, home, wanted) {
  return {
    name: "apart",
    setup(build) {
      build.onResolve({ filter: /^[^:]+$/ }, async ({ path, pluginData, ...rest }) => {
        if (pluginData === "seen" || rest.kind === "entry-point") return undefined;
        const found = await build.resolve(path, {
          pluginData: "seen",
          kind: rest.kind,
          resolveDir: rest.resolveDir,
          importer: rest.importer,
        });
        const file = relative(here, found.path).replaceAll(sep, "/");
        const at = home.get(file) ?? part;
        if (at === part) return found;
        // The style of a file comes with the file.
        if (file.endsWith(".css")) return { path: file, namespace: "elsewhere" };
        wanted.set(at, (wanted.get(at) ?? new Set()).add(file));
        return { path: `${at}.js:${named(found.path)}`, external: true };
      });
      build.onLoad({ filter: /.*/, namespace: "elsewhere" }, () => ({ contents: "", loader: "empty" }));
    },
  };
}

/**
 * The library of the figures as a module, without the function around it that serves all kinds of loaders. A browser
 * compiles only what runs at once while it reads a script; within that function it reads all of it again. The line at its
 * head asks Chromium to compile all of it beside the page: github.com/WICG/explicit-javascript-compile-hints-file-based.
 */
const unwrapped = {
  name: "unwrapped",
  setup(build) {
    build.onLoad({ filter: /plotly-cartesian\.min\.js$/ }, async ({ path }) => {
      const text = await readFile(path, "utf8");
      const inside =
        /\n"use strict";(var Plotly=\(.*)\nwindow\.Plotly = Plotly;\nreturn Plotly;\n\}\)\);\s*$/s.exec(text);
      if (!inside)
        throw new Error(`${path} is not wrapped as before: take its function off another way, or leave it`);
      return { contents: `${inside[1]}\nexport default Plotly;\n`, loader: "js" };
    });
  },
};

/** The parts on which others stand, from the top. */
const BELOW = ["explorer", "core"];

/** What such a part gives: the names of its entry, and each file that other parts use under its own name. */
const listed = (entry, files) =>
  [
    `export * from "./${entry}";`,
    ...[...files]
      .sort()
      .map((file) => `export * as ${JSON.stringify(named(join(here, file)))} from "./${file}";`),
  ].join("\n");

/**
 * A module as a part travels: what it imports and exports, as esbuild writes it in one line each, in the words of
 * CommonJS. esbuild's own form of that keeps the whole name of everything that is used of another part, and 500 bytes of
 * its own. No files are in a circle, so that what is required is complete when it is taken apart.
 */
const commonJs = (text) =>
  text
    .replace(
      /(?<![\w$.])import\{([^}]*)\}from("[^"]+");/g,
      (_, names, from) => `const{${names.replaceAll(" as ", ":")}}=require(${from});`,
    )
    .replace(/(?<![\w$.])import\*as ([\w$]+) from("[^"]+");/g, "const $1=require($2);")
    .replace(/(?<![\w$.])import("[^"]+");/g, "require($1);")
    .replace(
      /(?<![\w$.])export\{([^}]*)\};\s*$/,
      (_, names) =>
        `module.exports={${names
          .split(",")
          .map((one) => one.split(/ as ?/))
          .map(([own, as = own]) => `${as}:${own}`)
          .join(",")}};`,
    );

/** Bundles one script; returns its text, with its style as a name among those that it gives, and its files. */
async function bundled(name, { part = false, ...options }, inner) {
  const { outputFiles, metafile } = await esbuild.build({
    ...shared,
    ...options,
    outfile: join(here, "out.js"),
  });
  const text = outputFiles.find(({ path }) => path.endsWith(".js")).text;
  const css = outputFiles.find(({ path }) => path.endsWith(".css"))?.text.trim() ?? "";
  const files = Object.values(metafile.outputs).flatMap(({ inputs }) => Object.keys(inputs));
  return {
    name: `${name}.js`,
    text: part ? `${commonJs(text)}module.exports.css=${JSON.stringify(css)};\n` : text,
    files: files.flatMap((file) => [file, ...(inner.get(file) ?? [])]),
  };
}

/** All scripts of the page. Those that need others are made first, for these to know what they must give. */
export async function scripts() {
  const { entries, home } = await divided();
  const wanted = new Map();
  const inner = new Map();
  const part = (name, what) =>
    bundled(
      name,
      { ...what, part: true, format: "esm", plugins: [apart(name, home, wanted), workerSource(inner)] },
      inner,
    );
  const below = (name) =>
    part(name, {
      stdin: {
        contents: listed(entries.get(name), wanted.get(name) ?? []),
        resolveDir: here,
        sourcefile: `${name}.ts`,
      },
    });
  const made = await Promise.all(
    [...entries]
      .filter(([name]) => !BELOW.includes(name))
      .map(([name, entry]) => part(name, { entryPoints: [entry] })),
  );
  for (const name of BELOW) made.push(await below(name));
  const whole = {
    "core/loader": { format: "esm" },
    "report/inline": { format: "iife" },
    "report/figures": { format: "esm", plugins: [unwrapped], banner: { js: "//# allFunctionsCalledOnLoad" } },
  };
  for (const [path, options] of Object.entries(whole))
    made.push(await bundled(basename(path), { entryPoints: [`src/${path}.ts`], ...options }, inner));
  return made;
}

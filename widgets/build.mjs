// Bundles every src/<entry>.ts(x) listed below to ../rtlab/static/<entry>.js: one ES module, for a report one classic
// script, no network import.
import { mkdir, readdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";
import { notices } from "./notices.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const outdir = join(here, "..", "rtlab", "static");
const ENTRIES = /^(explorer|graph|loader)\.tsx?$/;
/** Stands in the HTML file of a report, where a module could not be told from its hash. */
const INLINE = "report.tsx";

const shared = {
  bundle: true,
  format: "esm",
  minify: true,
  target: "es2022",
  // Our own notices stand at the head of every bundle.
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
  logLevel: "info",
};

/** Files of the bundles within bundles, by the file that stands for each. */
const inner = new Map();

/** `import source from "worker:./file"` gives the text of the worker's bundle. */
const workerSource = {
  name: "worker-source",
  setup(build) {
    build.onResolve({ filter: /^worker:/ }, (args) => ({
      path: join(args.resolveDir, args.path.slice("worker:".length)),
      namespace: "worker",
    }));
    build.onLoad({ filter: /.*/, namespace: "worker" }, async (args) => {
      const result = await esbuild.build({
        ...shared,
        entryPoints: [args.path],
        format: "iife",
        write: false,
        metafile: true,
        logLevel: "silent",
      });
      inner.set(`worker:${args.path}`, Object.keys(result.metafile.inputs));
      const watchFiles = Object.keys(result.metafile.inputs).map((file) => join(process.cwd(), file));
      return {
        contents: result.outputFiles[0].text,
        loader: "text",
        watchFiles,
      };
    });
  },
};

/** `import css from "./file.css"` gives the minified text, which the widget adds to its own root. */
const styleText = {
  name: "style-text",
  setup(build) {
    build.onLoad({ filter: /\.css$/ }, async (args) => {
      const result = await esbuild.build({
        entryPoints: [args.path],
        minify: true,
        write: false,
        bundle: true,
        logLevel: "silent",
      });
      return { contents: result.outputFiles[0].text, loader: "text", watchFiles: [args.path] };
    });
  },
};

const entries = (await readdir(join(here, "src"))).filter((name) => ENTRIES.test(name));
await mkdir(outdir, { recursive: true });
const options = {
  ...shared,
  entryPoints: entries.map((name) => join(here, "src", name)),
  outdir,
  plugins: [workerSource, styleText, notices(process.cwd(), inner)],
};

const inline = { ...options, entryPoints: [join(here, "src", INLINE)], format: "iife" };

/** The page for measurements is no part of the package. */
const bench = {
  ...options,
  entryPoints: [join(here, "bench", "bench.ts")],
  outdir: join(here, "bench", "dist"),
};

for (const each of process.argv.includes("--bench") ? [bench] : [options, inline]) {
  if (process.argv.includes("--watch")) await (await esbuild.context(each)).watch();
  else await esbuild.build(each);
}

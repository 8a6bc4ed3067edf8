import { defineConfig } from "vitest/config";

/** The layout worker's source is made by the bundler; tests lay out in their own thread. */
const worker = {
  name: "worker",
  resolveId: (id: string) => (id.startsWith("worker:") ? `\0${id}` : null),
  load: (id: string) => (id.startsWith("\0worker:") ? 'export default "";' : null),
};

export default defineConfig({
  plugins: [worker],
  assetsInclude: ["**/*.gz"],
  // Layouts of thousands of random graphs take seconds, and longer on a machine that does other work too.
  test: { include: ["test/**/*.test.{ts,mjs}"], environment: "node", testTimeout: 60_000 },
});

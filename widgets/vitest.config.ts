import { defineConfig } from "vitest/config";

export default defineConfig({
  // Layouts of thousands of random graphs take seconds, and longer on a machine that does other work too.
  test: { include: ["test/**/*.test.{ts,mjs}"], environment: "node", testTimeout: 60_000 },
});

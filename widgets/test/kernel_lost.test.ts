import { expect, it } from "vitest";
import type { Chip, StageStatus } from "../src/core/contract";
import { withLostWork } from "../src/explorer/kernel_lost";

const standing = (stage: StageStatus["stage"], state: StageStatus["state"]): StageStatus => ({
  stage,
  state,
  why: "",
  text: "as it was",
  basis: "",
  more: false,
});

const chip = (part: Partial<Chip>): Chip =>
  ({ id: "int8", label: "int8·minmax", status: "ready", error: null, stages: [], ...part }) as Chip;

it("says of each stage that was under way that it is not done, and leaves the others", () => {
  const [left] = withLostWork([
    chip({
      stages: [standing("compiled", "done"), standing("timed", "partial"), standing("scored", "waiting")],
    }),
  ]);
  expect(left!.status).toBe("ready");
  expect(left!.stages.map(({ state, text }) => [state, text])).toEqual([
    ["done", "as it was"],
    ["partial", "as it was"],
    ["missing", "not scored: the kernel is gone"],
  ]);
});

it("says of a variant that was being built that it is not there, and how to get it", () => {
  const [left, ready] = withLostWork([chip({ status: "building" }), chip({ id: "fp32" })]);
  expect(left!.status).toBe("failed");
  expect(left!.error!.message).toBe(
    'Cannot show "int8·minmax": the kernel was gone before it was built. Run the cells again, and build it.',
  );
  expect([ready!.status, ready!.error]).toEqual(["ready", null]);
});

import type { Chip } from "../core/contract";

/** Variants of a kernel that is gone: what was being built or measured is not, and says why. */
export function withLostWork(chips: readonly Chip[]): Chip[] {
  return chips.map((chip) => {
    const stages = chip.stages.map((one) =>
      one.state === "waiting"
        ? { ...one, state: "missing" as const, text: `not ${one.stage}: the kernel is gone` }
        : one,
    );
    if (chip.status !== "building") return { ...chip, stages };
    const message = `Cannot show "${chip.label}": the kernel was gone before it was built. Run the cells again, and build it.`;
    return {
      ...chip,
      stages,
      status: "failed" as const,
      error: { kind: "Not built", message, details: "", until: [], rewrites: [], variant: "" },
    };
  });
}

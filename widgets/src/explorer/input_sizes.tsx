import { useState } from "preact/hooks";
import type { Dimension, OpenInput } from "../core/contract";
import type { ExplorerState } from "./explorer_state";

export function Sizes({ explorer }: { explorer: ExplorerState }) {
  const inputs = explorer.controls.value.sizes;
  const [drafts, setDrafts] = useState<Readonly<Record<string, string>>>({});
  const busy = explorer.busy();
  const shapes = named(inputs, drafts);
  return (
    <form
      class="rt-sizes"
      data-control="sizes"
      onSubmit={(event) => {
        event.preventDefault();
        if (shapes && !busy) explorer.resized(shapes);
      }}
    >
      {inputs.map((input) => (
        <fieldset key={input.name}>
          <legend>{input.name}</legend>
          {input.dimensions.map((dimension, axis) => {
            const key = keyOf(input, axis);
            return (
              <span key={key}>
                {axis > 0 && <span aria-hidden="true"> × </span>}
                {dimension.open ? (
                  <input
                    class="rt-write"
                    type="text"
                    inputMode="numeric"
                    size={5}
                    value={drafts[key] ?? dimension.size}
                    aria-label={`${input.name}, dimension ${axis}${dimension.symbol && `, ${dimension.symbol}`}`}
                    aria-invalid={sizeOf(dimension, drafts[key]) === null}
                    title={dimension.symbol || "The model gives this dimension no name"}
                    onInput={(event) => setDrafts({ ...drafts, [key]: event.currentTarget.value })}
                  />
                ) : (
                  dimension.size
                )}
              </span>
            );
          })}
        </fieldset>
      ))}
      <button
        type="submit"
        class="rt-build rt-call"
        aria-disabled={!shapes || busy !== ""}
        title={
          busy ||
          (shapes ? "Open the model with these sizes and build it" : "A size is a whole number from 1 on")
        }
      >
        Build with these sizes
      </button>
      <Dismiss explorer={explorer} />
    </form>
  );
}

export const Dismiss = ({ explorer }: { explorer: ExplorerState }) => (
  <button type="button" class="rt-field" data-control="dismiss" onClick={() => explorer.dismiss()}>
    Close
  </button>
);

export function shapesOf(inputs: readonly OpenInput[]): string {
  const sizes = ({ dimensions }: OpenInput): string => dimensions.map(({ size }) => size).join("×");
  return inputs.map((input) => `${input.name} ${sizes(input)}`).join(", ");
}

/** Dimensions of one symbol are one: what is written in one field stands in all. */
function keyOf(input: OpenInput, axis: number): string {
  return input.dimensions[axis]?.symbol || `${input.name} ${axis}`;
}

function sizeOf(dimension: Dimension, draft: string | undefined): number | null {
  if (draft === undefined) return dimension.size;
  return /^\s*[1-9]\d{0,8}\s*$/.test(draft) ? Number(draft) : null;
}

/** The shape of each input as it is written; null where something is no size. */
export function named(
  inputs: readonly OpenInput[],
  drafts: Readonly<Record<string, string>>,
): Record<string, number[]> | null {
  const shapes: Record<string, number[]> = {};
  for (const input of inputs) {
    const sizes = input.dimensions.map((dimension, axis) =>
      dimension.open ? sizeOf(dimension, drafts[keyOf(input, axis)]) : dimension.size,
    );
    const whole = sizes.filter((size) => size !== null);
    if (whole.length < sizes.length) return null;
    shapes[input.name] = whole;
  }
  return shapes;
}

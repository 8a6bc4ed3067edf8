import { useState } from "preact/hooks";
import type { Choice, OpenSize } from "../core/contract";
import { plural } from "../core/format";
import type { ExplorerState } from "./explorer_state";

export function Sizes({ explorer }: { explorer: ExplorerState }) {
  const fields = explorer.controls.value.sizes;
  const shown = chosenSizes(fields, explorer.choice.value);
  const [drafts, setDrafts] = useState<Readonly<Record<string, string>>>({});
  const busy = explorer.busy();
  const sizes = readSizes(shown, drafts);
  const beside = fitVariant(fields);
  const unusable = busy || (sizes ? "" : "A size is a whole number from 1 on");
  return (
    <form
      class="rt-sizes"
      data-control="sizes"
      onSubmit={(event) => {
        event.preventDefault();
        if (!sizes || busy) return;
        if (beside) explorer.buildAt(changedSizes(fields, sizes));
        else explorer.resized(sizes);
      }}
    >
      {shown.map((field) => (
        <label key={field.id} title={`In ${field.inputs.join(", ")}`}>
          <span>{labelSize(field)}</span>
          <input
            class="rt-write"
            type="text"
            inputMode="numeric"
            size={5}
            value={drafts[field.id] ?? field.size ?? ""}
            aria-invalid={sizeOf(field, drafts[field.id]) === null}
            onInput={(event) => setDrafts({ ...drafts, [field.id]: event.currentTarget.value })}
          />
        </label>
      ))}
      {beside && (
        <button
          type="button"
          class="rt-field"
          data-control="reopen"
          aria-disabled={unusable !== ""}
          title={unusable || "Open the model with these sizes and build it: variants of the present sizes go"}
          onClick={() => sizes && !busy && explorer.resized(sizes)}
        >
          Open the model with them
        </button>
      )}
      <button
        type="submit"
        class="rt-build rt-call"
        aria-disabled={unusable !== ""}
        title={
          unusable ||
          (beside
            ? "Build the chosen variant at these sizes, beside the others"
            : "Open the model with these sizes and build it")
        }
      >
        {beside ? "Build a variant" : "Build with these sizes"}
      </button>
      <Dismiss explorer={explorer} />
    </form>
  );
}

/** A size without a symbol is named by an input, and others may have it too. */
export function labelSize({ id, inputs }: OpenSize): string {
  const others = id.endsWith("]") ? inputs.length - 1 : 0;
  return others ? `${id} and ${plural(others, "other")}` : id;
}

export const Dismiss = ({ explorer }: { explorer: ExplorerState }) => (
  <button type="button" class="rt-field" data-control="dismiss" onClick={() => explorer.dismiss()}>
    Close
  </button>
);

/** The fields with the sizes that the choice has in place of the model's. */
export function chosenSizes(fields: readonly OpenSize[], { sizes = [] }: Pick<Choice, "sizes">): OpenSize[] {
  const own = new Map(sizes.map((each) => each.split("=") as [string, string]));
  return fields.map((field) => ({ ...field, size: sizeOf(field, own.get(field.id)) ?? field.size }));
}

/** Whether a variant can have sizes of its own: those of the model are known, and each has a symbol. */
export const fitVariant = (fields: readonly OpenSize[]): boolean =>
  fields.every(({ id, lacking }) => !lacking && !id.endsWith("]"));

/** The sizes in which a variant differs from the model, as a choice has them. */
export const changedSizes = (
  fields: readonly OpenSize[],
  sizes: Readonly<Record<string, number>>,
): string[] => fields.filter(({ id, size }) => sizes[id] !== size).map(({ id }) => `${id}=${sizes[id]}`);

export function describeSizes(fields: readonly OpenSize[]): string {
  return fields.map(({ id, size }) => `${id} ${size}`).join(", ");
}

function sizeOf(field: OpenSize, draft: string | undefined): number | null {
  if (draft === undefined) return field.size;
  return /^\s*\d{1,9}\s*$/.test(draft) && Number(draft) >= field.least ? Number(draft) : null;
}

/** Each size as it is written; null where something is no size. */
export function readSizes(
  fields: readonly OpenSize[],
  drafts: Readonly<Record<string, string>>,
): Record<string, number> | null {
  const sizes: Record<string, number> = {};
  for (const field of fields) {
    const size = sizeOf(field, drafts[field.id]);
    if (size === null) return null;
    sizes[field.id] = size;
  }
  return sizes;
}

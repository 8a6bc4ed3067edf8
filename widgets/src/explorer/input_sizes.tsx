import { useState } from "preact/hooks";
import type { OpenSize } from "../core/contract";
import type { ExplorerState } from "./explorer_state";

export function Sizes({ explorer }: { explorer: ExplorerState }) {
  const fields = explorer.controls.value.sizes;
  const [drafts, setDrafts] = useState<Readonly<Record<string, string>>>({});
  const busy = explorer.busy();
  const sizes = readSizes(fields, drafts);
  return (
    <form
      class="rt-sizes"
      data-control="sizes"
      onSubmit={(event) => {
        event.preventDefault();
        if (sizes && !busy) explorer.resized(sizes);
      }}
    >
      {fields.map((field) => (
        <label key={field.id} title={`In ${field.inputs.join(", ")}`}>
          <span>{field.id}</span>
          <input
            class="rt-write"
            type="text"
            inputMode="numeric"
            size={5}
            value={drafts[field.id] ?? field.size}
            aria-invalid={sizeOf(field, drafts[field.id]) === null}
            onInput={(event) => setDrafts({ ...drafts, [field.id]: event.currentTarget.value })}
          />
        </label>
      ))}
      <button
        type="submit"
        class="rt-build rt-call"
        aria-disabled={!sizes || busy !== ""}
        title={
          busy ||
          (sizes ? "Open the model with these sizes and build it" : "A size is a whole number from 1 on")
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

import { useRef } from "preact/hooks";
import type { ExplorerState } from "./explorer_state";
import { ACCEPT, OPENABLE, SAMPLES } from "./files";

interface Props {
  explorer: ExplorerState;
  label?: string;
  onOpen?(): void;
}

export function OpenFiles({ explorer, label = "", onOpen }: Props) {
  const input = useRef<HTMLInputElement>(null);
  const why = explorer.busy();
  const help = label
    ? "Samples of the model's own: an .npz with one array per input, or an .npy for a model with one"
    : OPENABLE;
  return (
    <>
      <button
        type="button"
        class={label ? "rt-link" : "rt-field"}
        data-control={label ? "data" : "files"}
        disabled={why !== ""}
        title={why || help}
        onClick={() => input.current!.click()}
      >
        {label || "Choose files…"}
      </button>
      <input
        type="file"
        hidden
        multiple={!label}
        ref={input}
        accept={label ? SAMPLES : ACCEPT}
        aria-label={label ? "Samples for the model's inputs" : OPENABLE}
        onChange={({ currentTarget }) => {
          void explorer.drop([...(currentTarget.files ?? [])]);
          // The same files can be chosen again.
          currentTarget.value = "";
          onOpen?.();
        }}
      />
    </>
  );
}

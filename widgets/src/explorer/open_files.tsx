import { useRef } from "preact/hooks";
import type { ExplorerState } from "./explorer_state";
import { ACCEPT, OPENABLE } from "./files";

export function OpenFiles({ explorer, onOpen }: { explorer: ExplorerState; onOpen?: () => void }) {
  const input = useRef<HTMLInputElement>(null);
  const why = explorer.busy();
  return (
    <>
      <button
        type="button"
        class="rt-field"
        data-control="files"
        disabled={why !== ""}
        title={why || OPENABLE}
        onClick={() => input.current!.click()}
      >
        Choose files…
      </button>
      <input
        type="file"
        hidden
        multiple
        ref={input}
        accept={ACCEPT}
        aria-label={OPENABLE}
        onChange={({ currentTarget }) => {
          void explorer.drop([...(currentTarget.files ?? [])]);
          // The same files can be chosen once more.
          currentTarget.value = "";
          onOpen?.();
        }}
      />
    </>
  );
}

import { useRef } from "preact/hooks";
import { ACCEPT, OPENABLE } from "../dropped";
import type { Lab } from "../lab";

/** A button that asks the browser for files, several at once, and hands them to the kernel. */
export function OpenFiles({ lab, onOpen }: { lab: Lab; onOpen?: () => void }) {
  const input = useRef<HTMLInputElement>(null);
  const why = lab.busy();
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
          void lab.drop([...(currentTarget.files ?? [])]);
          // The same files can be chosen once more.
          currentTarget.value = "";
          onOpen?.();
        }}
      />
    </>
  );
}

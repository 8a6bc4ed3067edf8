import { useEffect, useRef } from "preact/hooks";
import { Copy } from "../ui/cells";
import type { ExplorerState } from "./explorer_state";

export function BuildCommands({ explorer }: { explorer: ExplorerState }) {
  const { value: variant } = explorer.commandsOf;
  const close = useRef<HTMLButtonElement>(null);
  useEffect(() => close.current?.focus({ preventScroll: true }), [variant]);
  if (!variant) return null;
  const engine = explorer.study.engine.value;
  const commands = engine?.variant === variant ? engine.commands : null;
  return (
    <div class="rt-veil">
      <div
        class="rt-card rt-elsewhere"
        role="dialog"
        aria-label="Build it elsewhere"
        data-control="elsewhere"
      >
        <h3>Build it elsewhere</h3>
        <p class="rt-quiet">
          {commands
            ? "Save the prepared ONNX, copy it to the other machine, and run one of these beside it."
            : explorer.unusable() || `Showing ${explorer.study.variantTitle(variant)} …`}
        </p>
        {commands?.map((command) => (
          <Command key={command} text={command} />
        ))}
        <footer>
          <button
            type="button"
            class="rt-field"
            disabled={explorer.unusable() !== ""}
            onClick={() => explorer.save(variant)}
          >
            Save the prepared ONNX
          </button>
          <button
            type="button"
            class="rt-field"
            ref={close}
            onClick={() => {
              explorer.commandsOf.value = "";
            }}
          >
            Close
          </button>
        </footer>
      </div>
    </div>
  );
}

const Command = ({ text }: { text: string }) => (
  <div class="rt-command">
    <pre>
      {text.split(" ").map((word, i) => (
        <>
          {i > 0 && " "}
          <span>{word}</span>
        </>
      ))}
    </pre>
    <Copy title={`Copy the command for ${text.split(" ", 1)[0]}`} text={() => text} />
  </div>
);

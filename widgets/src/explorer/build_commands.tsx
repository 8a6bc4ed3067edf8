import { useEffect, useRef, useState } from "preact/hooks";
import type { ExplorerState } from "./explorer_state";

export function Elsewhere({ explorer }: { explorer: ExplorerState }) {
  const { value: variant } = explorer.elsewhere;
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
            onClick={() => explorer.save(variant, "onnx")}
          >
            Save the prepared ONNX
          </button>
          <button type="button" class="rt-field" ref={close} onClick={() => explorer.closeElsewhere()}>
            Close
          </button>
        </footer>
      </div>
    </div>
  );
}

function Command({ text }: { text: string }) {
  const line = useRef<HTMLPreElement>(null);
  const [copied, setCopied] = useState(false);
  const name = text.split(" ", 1)[0];
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
    } catch {
      // Browsers give the clipboard to secure pages alone: elsewhere the line is marked, for Ctrl+C.
      getSelection()?.selectAllChildren(line.current!);
    }
  };
  return (
    <div class="rt-command">
      <pre ref={line}>
        {text.split(" ").map((word, i) => (
          <>
            {i > 0 && " "}
            <span>{word}</span>
          </>
        ))}
      </pre>
      <button type="button" class="rt-field" aria-label={`Copy the command for ${name}`} onClick={copy}>
        {copied ? "Copied" : "Copy"}
      </button>
    </div>
  );
}

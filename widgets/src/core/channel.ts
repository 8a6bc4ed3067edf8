import type { AnyModel } from "@anywidget/types";
import { type Signal, signal } from "@preact/signals";
import { canSend } from "./connection";
import type {
  BuildState,
  Chip,
  Choice,
  Command,
  Controls,
  DataState,
  Failure,
  Figure,
  Inspection,
  PanelName,
  Status,
  Step,
  ViewState,
} from "./contract";
import type { Term } from "./glossary";
import type { Bytes } from "./payload";

export interface GraphTraits {
  source: Bytes;
  engine: Bytes;
  /** The engine of the third pane; empty where there is none. */
  other: Bytes;
  /** What follows where the picture of a graph has `later`; only the Explorer's class has them. */
  engine_later?: Bytes;
  other_later?: Bytes;
  view: ViewState;
  height: number;
  titles?: Record<string, string>;
}

export type Plotted = Pick<Figure, "data" | "layout">;

export interface ExplorerTraits extends GraphTraits {
  controls: Controls;
  choice: Choice;
  chips: Chip[];
  build: BuildState;
  status: Status[];
  data: DataState;
  failure: Failure | null;
  charts: Record<string, Plotted>;
  terms: readonly Term[];
  /** What tabs draw by themselves: answers to the questions of these names, empty where there is none. */
  engine_answer: Bytes;
  build_answer: Bytes;
  calibration_answer: Bytes;
  findings_answer: Bytes;
  notice: string;
  steps?: Step[];
  /** What the kernel found about the tensors of the node last asked for. */
  inspection: Inspection | null;
  stamp: number;
  /** A report's model alone has it: the panels that it holds, by variant, without a kernel behind the view. */
  saved?: Record<string, PanelName[]>;
}

/**
 * Gives traits as signals that follow the kernel until the abort signal fires. What goes wrong while the view takes
 * in a new value is reported, because Jupyter would only write it to the console.
 */
export function follower<T extends GraphTraits>(
  model: AnyModel<T>,
  end: AbortSignal,
  failed: (error: unknown) => void,
): <K extends keyof T & string>(name: K) => Signal<T[K]> {
  return (name) => {
    const value = signal(model.get(name));
    const update = (): void => {
      try {
        value.value = model.get(name);
      } catch (error) {
        failed(error);
      }
    };
    model.on(`change:${name}`, update);
    end.addEventListener("abort", () => model.off(`change:${name}`, update));
    return value;
  };
}

export function publish<T extends GraphTraits, K extends keyof T & string>(
  model: AnyModel<T>,
  name: K,
  value: T[K],
): void {
  model.set(name, value);
  if (canSend(model)) model.save_changes();
}

/** Asks the kernel; `begun` is called when it takes the command up, and when it is done with it. */
export function ask(
  model: Pick<AnyModel, "send">,
  command: Command,
  buffers?: ArrayBuffer[],
  begun?: () => void,
): void {
  if (!canSend(model)) return;
  // Jupyter calls the inner one; marimo calls the function itself, once it has sent the command.
  const heard = begun && Object.assign(() => begun(), { iopub: { status: begun } });
  model.send(command, heard, buffers);
}

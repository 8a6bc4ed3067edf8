import type { Failure } from "../core/contract";
import { plural, shorten } from "../core/format";

/** The most that a browser hands to a kernel: Jupyter limits a message to 10 MiB. */
export const LARGEST_DROP = 9 * 2 ** 20;
const MIB = 2 ** 20;

export const ACCEPT =
  ".onnx,.npz,.npy,.json,.log,.txt,.cache,.tea,.engine,.plan,.trt,.pb,.zip,application/json,text/plain";

export const SAMPLES = ".npz,.npy";

export const OPENABLE =
  "ONNX model, samples (.npz, .npy), trtexec's layers, profile, times, log, pieces of these, or any error text";

const PASTED = "pasted.txt";

type Sized = Pick<File, "name" | "size">;

function fileNames(files: readonly Sized[]): string {
  const name = `"${shorten(files[0]!.name, 80)}"`;
  return files.length === 1 ? name : `${name} and ${plural(files.length - 1, "other file")}`;
}

/** Why files cannot be handed to the kernel, or null where they can; `unusable` says why it hears nothing. */
export function openError(files: readonly Sized[], running: boolean, unusable = ""): Failure | null {
  if (unusable)
    return {
      kind: "No kernel",
      message: `Cannot open ${fileNames(files)}. ${unusable}.`,
      details: "",
      until: [],
      rewrites: [],
      variant: "",
    };
  if (running)
    return {
      kind: "Busy",
      message: `Cannot open ${fileNames(files)} now: other work is running. Cancel it, or wait and open the files again.`,
      details: "",
      until: [],
      rewrites: [],
      variant: "",
    };
  const size = files.reduce((sum, file) => sum + file.size, 0);
  if (size <= LARGEST_DROP) return null;
  return {
    kind: "Too large to drop",
    message:
      `Cannot open ${fileNames(files)}: ${Math.ceil(size / MIB)} MiB are more than the ${LARGEST_DROP / MIB} MiB that a ` +
      "browser can send to the kernel. Type the path of a model or of samples into the model list, or give paths " +
      "to study.read in a cell instead.",
    details: "",
    until: [],
    rewrites: [],
    variant: "",
  };
}

export const FIELDS = "input, textarea, select, [contenteditable]";

/** Whether something that is dragged can be opened: files, or a text that was selected elsewhere. */
export function openable(data: Pick<DataTransfer, "types"> | null): boolean {
  return Boolean(data && (data.types.includes("Files") || data.types.includes("text/plain")));
}

export function transferredFiles(data: Pick<DataTransfer, "files" | "getData"> | null): File[] {
  if (!data) return [];
  if (data.files.length) return [...data.files];
  const text = data.getData("text/plain");
  return text.trim() ? [new File([text], PASTED, { type: "text/plain" })] : [];
}

export async function readFiles(
  files: readonly File[],
): Promise<{ names: string[]; buffers: ArrayBuffer[] }> {
  const buffers = await Promise.all(files.map((file) => file.arrayBuffer()));
  return { names: files.map(({ name }) => name), buffers };
}

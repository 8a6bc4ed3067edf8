import type { AnyModel } from "@anywidget/types";

type End = "restarted" | "died" | "ended";

/**
 * How the kernel behind a widget can be reached: it is free; it is busy, so that what is asked waits; the connection is
 * lost and sought again, or given up; or the kernel is gone.
 */
export type KernelState = "free" | "busy" | "away" | "dropped" | End;

interface JupyterSignal {
  connect(listener: () => void): unknown;
  disconnect(listener: () => void): unknown;
}

/** The connection to a kernel as JupyterLab, Notebook and Voila have it. Another host may offer none. */
interface Connection {
  readonly status: string;
  readonly connectionStatus: string;
  readonly isDisposed: boolean;
  readonly statusChanged: JupyterSignal;
  readonly connectionStatusChanged: JupyterSignal;
  readonly disposed: JupyterSignal;
}

const ends = new WeakMap<object, End>();

const silent = new WeakSet<object>();

export const isGone = (reach: KernelState): boolean => ["restarted", "died", "ended"].includes(reach);

export const canSend = (model: object): boolean => !silent.has(model);

/** Whether the kernel hears what it is asked, be it later. */
export const isAlive = (reach: KernelState): boolean => reach === "free" || reach === "busy";

/** Tells how the kernel can be reached, at once and whenever that changes, until the signal fires. */
export function watchKernel(model: AnyModel, end: AbortSignal, onChange: (reach: KernelState) => void): void {
  // anywidget does not show whether the model itself is alive; its layout shares its fate.
  const layout = (): { comm_live?: boolean } => (model.get("layout") as object | undefined) ?? model;
  // Kept from now on: the manager may get the connection to another kernel, which knows nothing of this widget.
  const kernel = connectionOf(model);
  let last: KernelState | undefined;
  const check = (): void => {
    const ended = endOf(kernel) || ends.get(layout());
    if (ended) ends.set(layout(), ended);
    const reach = ended || (layout().comm_live === false ? "ended" : kernel ? stateOf(kernel) : "free");
    if (reach === last) return;
    last = reach;
    if (isGone(reach)) silent.add(model);
    else silent.delete(model);
    onChange(reach);
  };
  const later = (): void => void setTimeout(check);
  const signals = kernel ? [kernel.statusChanged, kernel.connectionStatusChanged, kernel.disposed] : [];
  model.on("comm_live_update", later);
  for (const signal of signals) signal.connect(check);
  end.addEventListener("abort", () => {
    model.off("comm_live_update", later);
    for (const signal of signals) signal.disconnect(check);
  });
  check();
}

function connectionOf({ widget_manager: manager }: AnyModel): Connection | null {
  const { kernel } = (manager ?? {}) as { kernel?: Partial<Connection> | null };
  const whole = kernel?.statusChanged && kernel.connectionStatusChanged && kernel.disposed;
  return whole ? (kernel as Connection) : null;
}

function endOf(kernel: Connection | null): End | undefined {
  if (kernel?.isDisposed || kernel?.status === "dead") return "ended";
  if (kernel?.status === "autorestarting") return "died";
  return kernel?.status === "restarting" ? "restarted" : undefined;
}

function stateOf({ status, connectionStatus }: Connection): KernelState {
  if (connectionStatus === "disconnected") return "dropped";
  if (connectionStatus !== "connected") return "away";
  return status === "busy" ? "busy" : "free";
}

import { describe, expect, it, vi } from "vitest";
import { ask, publish } from "../src/core/channel";
import { canSend, isAlive, isGone, type KernelState, watchKernel } from "../src/core/connection";

type Listener = () => void;

class Told {
  readonly listeners = new Set<Listener>();
  connect(listener: Listener): void {
    this.listeners.add(listener);
  }
  disconnect(listener: Listener): void {
    this.listeners.delete(listener);
  }
}

/** A kernel's connection as Jupyter's front end has it. */
class Connection {
  status = "idle";
  connectionStatus = "connected";
  isDisposed = false;
  readonly statusChanged = new Told();
  readonly connectionStatusChanged = new Told();
  readonly disposed = new Told();
  change(part: Partial<Pick<Connection, "status" | "connectionStatus" | "isDisposed">>): void {
    Object.assign(this, part);
    for (const { listeners } of [this.statusChanged, this.connectionStatusChanged, this.disposed])
      for (const listener of [...listeners]) listener();
  }
}

class Model {
  readonly layout = { comm_live: true };
  readonly #listeners = new Set<Listener>();
  constructor(readonly widget_manager: unknown = undefined) {}
  get(): unknown {
    return this.layout;
  }
  on(_event: string, listener: Listener): void {
    this.#listeners.add(listener);
  }
  off(_event: string, listener: Listener): void {
    this.#listeners.delete(listener);
  }
  live(alive: boolean): void {
    this.layout.comm_live = alive;
    for (const listener of this.#listeners) listener();
  }
}

function watched(model: Model): { told: KernelState[]; end: AbortController } {
  const told: KernelState[] = [];
  const end = new AbortController();
  watchKernel(model as never, end.signal, (reach) => told.push(reach));
  return { told, end };
}

describe("how a kernel can be reached", () => {
  it("follows what the kernel does and whether the page is connected to it", () => {
    const kernel = new Connection();
    const { told } = watched(new Model({ kernel }));
    kernel.change({ status: "busy" });
    kernel.change({ connectionStatus: "connecting", status: "unknown" });
    kernel.change({ connectionStatus: "disconnected" });
    kernel.change({ connectionStatus: "connected", status: "idle" });
    kernel.change({ status: "idle" });
    expect(told).toEqual(["free", "busy", "away", "dropped", "free"]);
  });

  it.each([
    ["restarted", [{ status: "restarting" }]],
    ["died", [{ status: "restarting" }, { status: "autorestarting" }]],
    ["ended", [{ status: "dead" }]],
    ["ended", [{ isDisposed: true }]],
  ] as const)("tells that it %s, although the next kernel is idle", (end, changes) => {
    const kernel = new Connection();
    const model = new Model({ kernel });
    const { told } = watched(model);
    for (const change of changes) kernel.change(change);
    kernel.change({ status: "starting", connectionStatus: "connecting" });
    kernel.change({ status: "idle", connectionStatus: "connected", isDisposed: false });
    expect(told.at(-1)).toBe(end);
    // A view that is made afterwards has only the other kernel to look at.
    expect(watched(model).told).toEqual([end]);
    // Another widget is the new kernel's.
    expect(watched(new Model({ kernel })).told).toEqual(["free"]);
  });

  it("keeps to the connection it began with, whatever the manager has later", () => {
    const kernel = new Connection();
    const manager = { kernel };
    const { told } = watched(new Model(manager));
    manager.kernel = new Connection();
    kernel.change({ isDisposed: true });
    expect(told).toEqual(["free", "ended"]);
  });

  it.each([undefined, {}, { kernel: null }, { kernel: { status: "idle" } }])(
    "needs no more than the model where the host has %j",
    async (manager) => {
      const model = new Model(manager);
      const { told } = watched(model);
      model.live(false);
      await vi.waitFor(() => expect(told).toEqual(["free", "ended"]));
    },
  );

  it("lets nothing be sent once nobody is left to hear it", () => {
    const kernel = new Connection();
    const sent: string[] = [];
    const model = Object.assign(new Model({ kernel }), {
      set: () => {},
      save_changes: () => sent.push("saved"),
      send: () => sent.push("sent"),
    });
    watched(model);
    const use = (): void => {
      publish(model as never, "height", 500);
      ask(model as never, { type: "observe" });
    };
    use();
    kernel.change({ connectionStatus: "connecting" });
    use();
    expect([canSend(model), sent]).toEqual([true, ["saved", "sent", "saved", "sent"]]);
    kernel.change({ isDisposed: true });
    use();
    expect([canSend(model), sent.length]).toEqual([false, 4]);
  });

  it("leaves no listener behind", () => {
    const kernel = new Connection();
    const { told, end } = watched(new Model({ kernel }));
    end.abort();
    kernel.change({ status: "dead" });
    expect(told).toEqual(["free"]);
    expect([kernel.statusChanged, kernel.disposed].map(({ listeners }) => listeners.size)).toEqual([0, 0]);
  });

  it("knows where a question is heard, and where nobody is left to hear it", () => {
    const all: KernelState[] = ["free", "busy", "away", "dropped", "restarted", "died", "ended"];
    expect(all.filter(isAlive)).toEqual(["free", "busy"]);
    expect(all.filter(isGone)).toEqual(["restarted", "died", "ended"]);
  });
});

import type { AnyModel, RenderProps } from "@anywidget/types";
import type { FetchParcel, Parcel } from "./contract";
import type { StartWidget, WidgetRenderer } from "./entry";
import type { Exports, Factory } from "./parts";

/**
 * What the kernel delivers as messages: the digest of each, empty where it is empty. Names that end in .js are parts of
 * the page's code, and all parts of one build have one digest.
 */
type Parcels = Record<string, string>;
type Props = RenderProps<Record<string, unknown>>;
interface Kernel {
  isDisposed: boolean;
  disposed?: { connect(told: () => void): void; disconnect(told: () => void): void };
}

const WAITING = "Waiting for the kernel, which sends this view as soon as it is free.";
const GONE =
  "This view was left by a kernel that no longer runs. Run the cells again, from the one that makes the study, to " +
  'see it. A report needs no kernel: study.report("report.html").';
const PATIENCE_MS = 400;

const CORE = "core.js";
type Core = Factory & { exports?: Exports };

const isPart = (name: string): boolean => name.endsWith(".js");

/** One copy of a part serves all widgets of the page that are of one build: by its name and digest. */
const page = globalThis as { rtlabScripts?: Map<string, Promise<Factory>> };
page.rtlabScripts ??= new Map();
const scripts = page.rtlabScripts;

/** Draws one view of a widget, or says in words why there is nothing to see. */
function render({ model, el }: Props, delivered: DeliveredTraits): () => void {
  const end = new AbortController();
  const words = el.appendChild(document.createElement("p"));
  words.setAttribute("role", "status");
  words.style.cssText = "padding:8px 12px;color:var(--jp-ui-font-color2,GrayText)";
  const say = (text: string): void => {
    if (words.textContent !== text) words.textContent = text;
  };
  let stop: (() => void) | undefined;
  const finish = (): void => {
    end.abort();
    stop?.();
    words.remove();
  };
  const kernel = kernelOf(model);
  const check = (): void => {
    if (gone(model) || kernel?.isDisposed) say(GONE);
  };
  const later = (): void => void setTimeout(check);
  model.on("comm_live_update", later);
  // A kernel that is shut down leaves its models as they are.
  kernel?.disposed?.connect(check);
  const slow = setTimeout(() => {
    say(WAITING);
    check();
  }, PATIENCE_MS);
  end.signal.addEventListener("abort", () => {
    clearTimeout(slow);
    model.off("comm_live_update", later);
    kernel?.disposed?.disconnect(check);
  });
  check();
  complete(model, delivered, end.signal)
    .then(async (view) => {
      const begin = await code(model.get("parcels") as Parcels);
      if (end.signal.aborted) return;
      clearTimeout(slow);
      model.off("comm_live_update", later);
      words.remove();
      stop = begin({ model: view, el });
    })
    .catch((error: unknown) => {
      el.append(words);
      say(`Cannot show this view: ${error}. Reload the page, or run the cell again.`);
    });
  return finish;
}

async function code(parcels: Parcels): Promise<WidgetRenderer> {
  const keys = Object.entries(parcels).flatMap(([name, tag]) => (isPart(name) ? `${name} ${tag}` : []));
  try {
    const factories = await Promise.all(keys.map((key) => scripts.get(key)!));
    const at = keys.findIndex((key) => key.startsWith(CORE));
    const core: Core = factories[at]!;
    if (!core.exports) {
      const module = { exports: { css: "" } };
      core(module, () => {});
      core.exports = module.exports;
    }
    return (core.exports.startWidget as StartWidget)(
      core.exports,
      keys[1 - at]!.split(" ")[0]!,
      factories[1 - at]!,
    );
  } catch (error) {
    for (const key of keys) scripts.delete(key);
    throw error;
  }
}

function gone(model: AnyModel): boolean {
  return (model.get("layout") as { comm_live?: boolean } | undefined)?.comm_live === false;
}

function kernelOf({ widget_manager: manager }: AnyModel): Kernel | undefined {
  return (manager as { kernel?: Kernel } | undefined)?.kernel;
}

/** What the kernel has delivered for a widget, for all its views; the tag of each is its digest. */
class DeliveredTraits {
  readonly tags: Parcels = {};
  readonly values: Record<string, unknown> = {};
  readonly listeners = new Map<string, Set<() => void>>();

  put(name: string, tag: string, value: unknown): void {
    this.tags[name] = tag;
    this.values[name] = value;
    for (const listener of [...(this.listeners.get(`change:${name}`) ?? [])]) listener();
  }

  take({ type, name, digest, content }: Parcel, buffers: DataView[]): void {
    if (type !== "parcel") return;
    const key = `${name} ${digest}`;
    const packed = isPart(name) && buffers[0];
    if (packed && !scripts.has(key)) scripts.set(key, imported(packed));
    // Every view hears it, and what a busy kernel sent unasked it sends again once it hears the question.
    if (this.tags[name] === digest) return;
    this.put(name, digest, packed ? null : (buffers[0] ?? content));
  }
}

/** The model with what is delivered as if it were traits; comes back when all that was announced has arrived. */
function complete(model: AnyModel, delivered: DeliveredTraits, end: AbortSignal): Promise<unknown> {
  const { values, listeners, tags } = delivered;
  const requested: Parcels = {};
  const announced = (): Parcels => model.get("parcels") as Parcels;

  return new Promise((resolve) => {
    const settle = (): void => {
      if (Object.entries(announced()).every(([name, tag]) => tags[name] === tag)) resolve(view);
    };
    const follow = (): void => {
      for (const [name, tag] of Object.entries(announced())) {
        if (tags[name] === tag) continue;
        if (!tag || (isPart(name) && scripts.has(`${name} ${tag}`))) delivered.put(name, tag, null);
        else if (requested[name] !== tag && !gone(model)) {
          requested[name] = tag;
          model.send({ type: "fetch", name } satisfies FetchParcel);
        }
      }
      settle();
    };
    const take = (parcel: Parcel, buffers: DataView[]): void => {
      delivered.take(parcel, buffers);
      settle();
    };
    const view = {
      get: (name: string): unknown => (name in values ? values[name] : model.get(name)),
      set: model.set.bind(model),
      save_changes: model.save_changes.bind(model),
      send: model.send.bind(model),
      widget_manager: model.widget_manager,
      on(event: string, listener: () => void): void {
        model.on(event, listener);
        if (!listeners.has(event)) listeners.set(event, new Set());
        listeners.get(event)?.add(listener);
      },
      off(event: string, listener: () => void): void {
        model.off(event, listener);
        listeners.get(event)?.delete(listener);
      },
    };
    model.on("msg:custom", take as never);
    model.on("change:parcels", follow);
    end.addEventListener("abort", () => {
      model.off("msg:custom", take as never);
      model.off("change:parcels", follow);
    });
    follow();
  });
}

async function imported(packed: DataView): Promise<Factory> {
  const bytes = new Blob([packed as DataView<ArrayBuffer>]).stream();
  const text = await new Response(bytes.pipeThrough(new DecompressionStream("gzip"))).text();
  const module = `export default (module, require) => {\n${text}\n}`;
  const url = URL.createObjectURL(new Blob([module], { type: "text/javascript" }));
  try {
    return ((await import(url)) as { default: Factory }).default;
  } finally {
    URL.revokeObjectURL(url);
  }
}

/**
 * What a saved notebook keeps of a widget: it fetches the code and what it shows from the kernel. A host calls it once
 * for each widget, and gives every view a model of its own.
 */
export default () => {
  const delivered = new DeliveredTraits();
  return {
    /** Takes what a kernel sends before the cell has ended, and with it the widget is displayed. */
    initialize({ model }: { model: AnyModel }): void {
      const take = (parcel: Parcel, buffers: DataView[]): void => delivered.take(parcel, buffers);
      model.on("msg:custom", take as never);
    },
    render: (props: Props): (() => void) => render(props, delivered),
  };
};

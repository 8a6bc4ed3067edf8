import type { Signal } from "@preact/signals";
import { Component, type ComponentChildren, render } from "preact";
import { listenForKeys } from "./keys";
import { effectsUntil } from "./lifetime";
import "../ui/style.css";

interface Mounted {
  root: HTMLElement;
  end: AbortSignal;
}

/**
 * Builds a widget inside `el`. What goes wrong while it is built or shown becomes a readable card in the widget.
 * Returns the function that takes it down.
 */
export function mount(
  el: HTMLElement,
  name: string,
  css: string,
  make: (mounted: Mounted) => { view: ComponentChildren; problem: Signal<unknown> },
): () => void {
  const end = new AbortController();
  el.style.width = "100%";
  const style = el.appendChild(document.createElement("style"));
  style.textContent = css;
  const root = el.appendChild(document.createElement("div"));
  root.className = `rtlab rt-${name}`;
  root.dataset.ready = "0";
  // JupyterLab's own shortcuts stay silent while the widget has focus.
  root.dataset.lmSuppressShortcuts = "true";
  const fail = (error: unknown): void => {
    console.error(error);
    render(null, root);
    root.replaceChildren(card(error));
    root.dataset.failed = "1";
  };
  const build = (): void => {
    try {
      listenForKeys(root, end.signal);
      const { view, problem } = make({ root, end: end.signal });
      effectsUntil(end.signal, () => {
        if (problem.value) fail(problem.value);
      });
      render(<Guard onError={fail}>{view}</Guard>, root);
    } catch (error) {
      fail(error);
    }
  };
  // Jupyter may render before it attaches the element; colours and sizes can be read only afterwards.
  const attached = new ResizeObserver(() => {
    if (!root.clientWidth) return;
    attached.disconnect();
    build();
  });
  attached.observe(root);
  return () => {
    attached.disconnect();
    render(null, root);
    end.abort();
    root.remove();
    style.remove();
  };
}

class Guard extends Component<
  { onError(error: unknown): void; children: ComponentChildren },
  { failed: boolean }
> {
  override state = { failed: false };

  override componentDidCatch(error: unknown): void {
    this.setState({ failed: true });
    // The tree that failed must be left before it can be taken down.
    queueMicrotask(() => this.props.onError(error));
  }

  override render(): ComponentChildren {
    return this.state.failed ? null : this.props.children;
  }
}

function card(error: unknown): HTMLElement {
  const box = document.createElement("div");
  box.className = "rt-card rt-crash";
  box.setAttribute("role", "alert");
  const add = (tag: string, text: string): void => {
    box.appendChild(document.createElement(tag)).textContent = text;
  };
  add("h3", "The view stopped");
  add("p", error instanceof Error ? error.message : String(error));
  add(
    "p",
    "The results are safe. Run the cell again, or reload the page of a saved report, to rebuild the view.",
  );
  if (error instanceof Error && error.stack) add("pre", error.stack);
  return box;
}

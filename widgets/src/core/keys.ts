/** Returns true when it has dealt with the key. */
export type KeyHandler = (event: KeyboardEvent) => boolean;

const first = new WeakMap<Element, KeyHandler>();
const handlers = new WeakMap<Element, KeyHandler>();

/** The handler of an element; keys reach it from the focused element upward. */
export function onKeys(element: Element | null, handler: KeyHandler): void {
  if (element) handlers.set(element, handler);
}

/** The handler of a widget's root that comes before those of everything in it. */
export function onKeysFirst(root: Element, handler: KeyHandler): void {
  first.set(root, handler);
}

/**
 * Keys pressed while the widget has focus go to the widget alone. Notebook 7 takes keys at the document in the capture
 * phase, so that only a listener on the window comes first. Keys with Ctrl, Meta or Alt stay with the browser and
 * Jupyter, for saving and the like.
 */
export function listenForKeys(root: HTMLElement, end: AbortSignal): void {
  const listener = (event: KeyboardEvent): void => {
    const path = event.composedPath();
    if (!path.includes(root) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.stopPropagation();
    if (event.type !== "keydown") return;
    if (first.get(root)?.(event)) {
      event.preventDefault();
      return;
    }
    for (const target of path) {
      if (target instanceof Element && handlers.get(target)?.(event)) {
        event.preventDefault();
        return;
      }
      if (target === root) return;
    }
  };
  for (const name of ["keydown", "keyup", "keypress"] as const) {
    window.addEventListener(name, listener, { capture: true, signal: end });
  }
}

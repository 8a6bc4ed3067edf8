import { computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { fittingHeight, HOSTS } from "./fitting";

/** The room that the page has for a widget, and the whole screen where that was asked for. */
export class Room {
  /** The height that fits the place, as long as the abort signal has not fired. */
  readonly fitting: ReadonlySignal<number>;
  /** Whether the widget has the whole screen. */
  readonly full: Signal<boolean> = signal(false);
  /** Why it cannot have it; empty where it can. */
  readonly unable: string;
  readonly window: Signal<number> = signal(window.innerHeight);
  readonly #root: HTMLElement;

  constructor(root: HTMLElement, end: AbortSignal, width: ReadonlySignal<number>) {
    this.#root = root;
    this.unable = document.fullscreenEnabled ? "" : "This page does not let its parts have the whole screen";
    const host = root.closest(HOSTS);
    const place = signal(host?.clientHeight ?? 0);
    this.fitting = computed(() => fittingHeight(this.window.value, place.value, width.value));
    const update = (): void => {
      this.window.value = window.innerHeight;
      // A notebook that is out of view has no height, and comes back as it was.
      if (host?.clientHeight) place.value = host.clientHeight;
    };
    window.addEventListener("resize", update, { signal: end });
    document.addEventListener(
      "fullscreenchange",
      () => {
        this.full.value = root.matches(":fullscreen");
        update();
      },
      { signal: end },
    );
    if (!host) return;
    const observer = new ResizeObserver(update);
    observer.observe(host);
    end.addEventListener("abort", () => observer.disconnect());
  }

  /** Takes the whole screen, or gives it back. */
  toggle(): void {
    // Refused without a key or a click of the user; nothing has changed then.
    const asked = this.full.peek() ? document.exitFullscreen() : this.#root.requestFullscreen();
    asked.catch((error: unknown) => console.warn(error));
  }
}

import { computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { HOSTS, heightThatFits } from "../ui/responsive";

/** Whether the widget fills the screen, and the height that it has in the page otherwise. */
export class Fullscreen {
  readonly on: Signal<boolean> = signal(false);
  /** Why full screen is not available; empty where it is. */
  readonly unavailable: string;
  readonly windowHeight: Signal<number> = signal(window.innerHeight);
  readonly fittingHeight: ReadonlySignal<number>;
  readonly #root: HTMLElement;

  constructor(root: HTMLElement, end: AbortSignal, width: ReadonlySignal<number>) {
    this.#root = root;
    this.unavailable = document.fullscreenEnabled ? "" : "This page does not allow full screen";
    const host = root.closest(HOSTS);
    const hostHeight = signal(host?.clientHeight ?? 0);
    this.fittingHeight = computed(() =>
      heightThatFits(this.windowHeight.value, hostHeight.value, width.value),
    );
    const update = (): void => {
      this.on.value = root.matches(":fullscreen");
      this.windowHeight.value = window.innerHeight;
      // A notebook that is out of view has no height, and comes back as it was.
      if (host?.clientHeight) hostHeight.value = host.clientHeight;
    };
    window.addEventListener("resize", update, { signal: end });
    document.addEventListener("fullscreenchange", update, { signal: end });
    if (!host) return;
    const observer = new ResizeObserver(update);
    observer.observe(host);
    end.addEventListener("abort", () => observer.disconnect());
  }

  toggle(): void {
    // The browser refuses without a key or a click of the user.
    const request = this.on.peek() ? document.exitFullscreen() : this.#root.requestFullscreen();
    request.catch((error: unknown) => console.warn(error));
  }
}

import type { Look } from "../overlay";
import { Camera, type Insets, type Rect } from "./camera";
import { Minimap } from "./minimap";
import { type Marks, NO_MARKS, SHOW } from "./paint";
import { around, boxAt, foldAt, rectOf, type Scene, wireAt } from "./scene";
import { Screen } from "./screen";
import type { Type } from "./text";
import type { Theme } from "./theme";

export interface StageEvents {
  /** The box under the pointer, or -1, with the pointer's place in the pane. */
  hover(box: number, x: number, y: number): void;
  click(box: number, add: boolean): void;
  wire?(wire: number, add: boolean): void;
  fold?(box: number): void;
  /** The user moved the camera; called on every step of a glide too. */
  moved?(): void;
  drawn(): void;
  frame(): void;
  failed(error: unknown): void;
}

const PAD = 18;
/** What a graph that is shown as a whole leaves free. */
const MARGINS: Insets = { left: PAD, top: PAD, right: PAD, bottom: PAD };
/** From this scale on the least text in a box, of 10, is 9 pixels high: a graph that would be smaller opens at its start. */
const READABLE = 0.9;
/** What is revealed together is at least that large: its titles can be read. */
const LEGIBLE = 0.62;
/** So much of the graph stays in view, wherever it is moved. */
const KEEP = 60;
const REST_MS = 250;
const DRAG_PIXELS = 4;
const WIRE_REACH = 6;
const LINE_PIXELS = 16;

/** One canvas with its camera and minimap: draws a scene and turns pointers into events. */
export class Stage {
  readonly camera: Camera;
  scene: Scene | null = null;
  /** The canvas's corner in the element that holds all panes; taken when the layout of the page has settled. */
  corner = { x: 0, y: 0 };
  readonly #canvas: HTMLCanvasElement;
  readonly #screen: Screen;
  readonly #map: Minimap;
  readonly #events: StageEvents;
  #theme: Theme | null = null;
  #type: Type | null = null;
  #look: Look | null = null;
  #marks: Marks = NO_MARKS;
  #wire = -1;
  #frame = 0;
  #sceneIsNew = false;
  #mapStale = true;
  /** In every corner the map would lie on boxes. */
  #mapCoversBoxes = false;
  #mapDragging = false;
  #resting = 0;
  /** The camera follows another pane or a selection, not the user of this pane. */
  #following = false;
  readonly #pointers = new Map<number, { x: number; y: number }>();
  #dragDistance = 0;

  constructor(canvas: HTMLCanvasElement, map: HTMLCanvasElement, events: StageEvents, end: AbortSignal) {
    this.#canvas = canvas;
    this.#screen = new Screen(canvas);
    this.#map = new Minimap(map);
    this.#events = events;
    this.camera = new Camera(() => {
      this.request();
      if (!this.#following) this.#events.moved?.();
    });
    const observer = new ResizeObserver(() => this.#resize());
    observer.observe(canvas);
    end.addEventListener("abort", () => {
      observer.disconnect();
      this.camera.stop();
      cancelAnimationFrame(this.#frame);
      clearTimeout(this.#resting);
    });
    const on = <K extends keyof HTMLElementEventMap>(
      element: HTMLElement,
      name: K,
      listener: (event: HTMLElementEventMap[K]) => void,
    ): void => element.addEventListener(name, listener, { signal: end, passive: false });
    on(canvas, "pointerdown", (event) => this.#down(event));
    on(canvas, "pointermove", (event) => this.#move(event));
    on(canvas, "pointerup", (event) => this.#up(event));
    on(canvas, "pointercancel", (event) => void this.#pointers.delete(event.pointerId));
    on(canvas, "pointerleave", () => this.#point(-1, -1, 0, 0));
    on(canvas, "wheel", (event) => this.#wheel(event));
    on(canvas, "dblclick", (event) => this.#zoomTo(event));
    const look = (event: PointerEvent): void => {
      if (!(event.buttons & 1)) return;
      this.#following = false;
      this.camera.centreOn(...this.#map.toWorld(event.offsetX, event.offsetY));
    };
    on(map, "pointerdown", (event) => {
      map.setPointerCapture(event.pointerId);
      this.#mapDragging = true;
      look(event);
    });
    for (const name of ["pointerup", "pointercancel"] as const)
      on(map, name, () => {
        this.#mapDragging = false;
        this.#rest();
      });
    on(map, "pointermove", look);
  }

  dress(theme: Theme, type: Type): void {
    this.#theme = theme;
    this.#type = type;
    this.#mapStale = true;
    this.request();
  }

  show(scene: Scene | null, look: Look | null, keep: boolean): void {
    this.scene = scene;
    this.#look = look;
    this.#marks = NO_MARKS;
    this.#wire = -1;
    this.#mapStale = true;
    this.#sceneIsNew = true;
    this.#following = true;
    if (scene) this.#limit(scene);
    if (scene && !keep) this.#firstView(scene);
    this.request();
  }

  paintWith(look: Look): void {
    this.#look = look;
    this.#mapStale = true;
    this.request();
  }

  mark(marks: Marks): void {
    if (marks.selected !== this.#marks.selected) this.#mapStale = true;
    this.#marks = marks;
    this.request();
  }

  fit(): void {
    this.#following = false;
    if (this.scene) this.camera.fit(this.scene.bounds, MARGINS, { glide: true });
  }

  zoomTo(ids: Iterable<string>): void {
    const { scene } = this;
    const rect =
      scene &&
      around(
        scene,
        [...ids].flatMap((id) => scene.index.get(id) ?? []),
      );
    if (!rect) return;
    this.#following = false;
    const [dx, dy] = [Math.min(60, rect.width / 4), Math.min(60, rect.height / 2)];
    const wide = { x: rect.x - dx, y: rect.y - dy, width: rect.width + 2 * dx, height: rect.height + 2 * dy };
    this.camera.fit(wide, MARGINS, { largest: 1.6, glide: true });
  }

  zoom(factor: number, y = this.camera.height / 2): void {
    this.#following = false;
    this.camera.zoomAt(this.camera.width / 2, y, factor);
  }

  /**
   * Puts a point of the graph in the middle of the pane, because another pane went there. A graph that is not broader
   * than the pane stays where it is across the way it runs.
   */
  follow(wx: number, wy: number, scale = this.camera.scale): void {
    const { camera, scene } = this;
    if (!scene) return;
    this.#following = true;
    const { bounds, across } = scene;
    const same = scale === camera.scale;
    const [cx, cy] = camera.toWorld(camera.width / 2, camera.height / 2);
    const narrow =
      same && (across ? bounds.height * scale <= camera.height : bounds.width * scale <= camera.width);
    camera.centreOn(narrow && !across ? cx : wx, narrow && across ? cy : wy, scale);
  }

  /** Brings boxes into view; with many of them the first that fit. `user` tells that others should follow. */
  reveal(boxes: number[], glide: boolean, user = false): void {
    const { scene, camera } = this;
    if (!scene || !boxes.length) return;
    this.#following = !user;
    let rect = around(scene, boxes);
    if (rect && camera.fitScale(rect, MARGINS, 1) < LEGIBLE) rect = rectOf(scene, boxes[0]!);
    if (rect) camera.reveal(rect, this.#insets, glide);
  }

  /** Edges that the minimap covers, where the pane is large enough to spare them. */
  get #insets(): Insets {
    const { width, height } = this.camera;
    const side = Math.min(36, width / 6);
    const top = Math.min(28, height / 8);
    const map = this.#map.widthIn(this.camera);
    const right = map ? map + 20 : side;
    return { left: side, top, right, bottom: Math.max(top, PAD) };
  }

  get look(): Look | null {
    return this.#look;
  }

  place(box: number): Rect | null {
    return this.scene ? this.camera.toScreen(rectOf(this.scene, box)) : null;
  }

  get origin(): DOMRect {
    return this.#canvas.getBoundingClientRect();
  }

  request(): void {
    if (!this.#frame) this.#frame = requestAnimationFrame(() => this.#attempt());
  }

  /** Once nothing moves any more, the map gives way to the boxes; not while it is what moves them. */
  #rest(): void {
    clearTimeout(this.#resting);
    this.#resting = window.setTimeout(() => {
      if (!this.scene || this.#mapDragging) return;
      const before = this.#mapCoversBoxes;
      this.#mapCoversBoxes = !this.#map.makeRoom(this.camera, this.scene);
      if (before !== this.#mapCoversBoxes) this.request();
    }, REST_MS);
  }

  #attempt(): void {
    this.#frame = 0;
    try {
      this.#draw();
    } catch (error) {
      this.#events.failed(error);
    }
  }

  #draw(): void {
    if (!this.#theme || !this.#type) return;
    const { scene, camera } = this;
    if (!scene || !this.#look) {
      this.#screen.clear(this.#theme);
      this.#map.canvas.hidden = true;
    } else {
      const marks = { ...this.#marks, wire: this.#wire };
      this.#screen.paint(devicePixelRatio, scene, camera, this.#theme, this.#type, this.#look, marks);
      if (this.#mapStale) this.#map.redraw(scene, camera, this.#theme, this.#look, this.#marks.selected);
      this.#mapStale = false;
      const useful = this.#map.frame(camera, scene, this.#theme);
      if (useful && this.#sceneIsNew) this.#mapCoversBoxes = !this.#map.makeRoom(camera, scene);
      else if (useful) this.#rest();
      this.#map.canvas.hidden = !useful || this.#mapCoversBoxes;
    }
    this.#events.frame();
    if (this.#sceneIsNew && this.camera.width > 1) {
      this.#sceneIsNew = false;
      this.#events.drawn();
    }
  }

  #resize(): void {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    if (!width || !height) return;
    const first = this.camera.width <= 1;
    const dx = (width - this.camera.width) / 2;
    const selected = first ? undefined : [...this.#marks.selected].find((box) => this.#inView(box));
    this.#canvas.width = Math.round(width * devicePixelRatio);
    this.#canvas.height = Math.round(height * devicePixelRatio);
    this.camera.resize(width, height);
    const home = this.#canvas.closest(".rt-panes")!.getBoundingClientRect();
    this.corner = { x: this.origin.left - home.left, y: this.origin.top - home.top };
    this.#mapStale = true;
    this.#following = true;
    if (this.scene) this.#limit(this.scene);
    if (first && this.scene) this.#firstView(this.scene);
    else if (!first) {
      this.camera.shift(dx, 0);
      if (this.scene) this.camera.keep(this.scene.bounds, KEEP);
      // What is selected and was in view stays so, whichever side the room was taken from.
      if (selected !== undefined) this.reveal([selected], false);
    }
    this.request();
  }

  #inView(box: number): boolean {
    const place = this.place(box);
    const { width, height } = this.camera;
    return (
      place !== null &&
      place.x + place.width > 0 &&
      place.x < width &&
      place.y + place.height > 0 &&
      place.y < height
    );
  }

  #limit(scene: Scene): void {
    this.camera.least = Math.min(0.1, 0.7 * this.camera.fitScale(scene.bounds, MARGINS, 1));
  }

  #firstView(scene: Scene): void {
    const { camera } = this;
    if (camera.width <= 1) return;
    if (this.#theme && this.#look)
      this.#map.redraw(scene, camera, this.#theme, this.#look, this.#marks.selected);
    const whole = camera.fitScale(scene.bounds, MARGINS, 1.1);
    if (whole >= READABLE) {
      camera.fit(scene.bounds, MARGINS, { largest: 1.1 });
      return;
    }
    // The minimap's strip stays free where the graph is narrow enough.
    const { bounds, across } = scene;
    const strip = (across ? this.#map.heightIn(camera) : this.#map.widthIn(camera)) + PAD;
    const room = (across ? camera.height : camera.width) - 2 * PAD;
    const breadth = across ? bounds.height : bounds.width;
    const free = (room - strip) / breadth;
    const scale = free >= READABLE ? Math.min(1, free) : READABLE;
    const first = scene.figures.findIndex(({ box }) => box.kind === "input");
    const box = rectOf(scene, Math.max(0, first));
    const wide = breadth * scale > room + 2 * PAD;
    const rect = wide ? { ...box, ...(across ? { x: 0 } : { y: 0 }) } : bounds;
    camera.start(rect, PAD, scale, free >= READABLE ? strip : 0, across);
  }

  #at(event: MouseEvent): { x: number; y: number } {
    const { left, top } = this.#canvas.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  }

  #pick(x: number, y: number): { box: number; wire: number } {
    if (!this.scene) return { box: -1, wire: -1 };
    const [wx, wy] = this.camera.toWorld(x, y);
    const box = boxAt(this.scene, wx, wy);
    return { box, wire: box < 0 ? wireAt(this.scene, wx, wy, WIRE_REACH / this.camera.scale) : -1 };
  }

  /** The box whose fold glyph is under the pointer, where the glyph is large enough to be seen. */
  #foldAt(x: number, y: number): number {
    const { scene, camera } = this;
    return scene && camera.scale >= SHOW.title ? foldAt(scene, ...camera.toWorld(x, y)) : -1;
  }

  #point(box: number, wire: number, x: number, y: number): void {
    if (wire !== this.#wire) {
      this.#wire = wire;
      this.request();
    }
    this.#canvas.style.cursor = box >= 0 || wire >= 0 ? "pointer" : "";
    this.#events.hover(box, x, y);
  }

  #down(event: PointerEvent): void {
    if (event.button !== 0) return;
    this.#following = false;
    this.#canvas.setPointerCapture(event.pointerId);
    this.#pointers.set(event.pointerId, this.#at(event));
    this.#dragDistance = 0;
  }

  #move(event: PointerEvent): void {
    const now = this.#at(event);
    const before = this.#pointers.get(event.pointerId);
    if (!before) {
      const { box, wire } = this.#pick(now.x, now.y);
      this.#point(box, wire, now.x, now.y);
      return;
    }
    const [dx, dy] = [now.x - before.x, now.y - before.y];
    this.#dragDistance += Math.hypot(dx, dy);
    const other = [...this.#pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      const far = Math.hypot(now.x - other.x, now.y - other.y);
      const was = Math.hypot(before.x - other.x, before.y - other.y);
      this.camera.zoomAt((now.x + other.x) / 2, (now.y + other.y) / 2, far / Math.max(1, was));
    } else if (this.#dragDistance <= DRAG_PIXELS) return;
    else {
      this.camera.pan(dx, dy);
      if (this.scene) this.camera.keep(this.scene.bounds, KEEP);
    }
    this.#canvas.style.cursor = "grabbing";
    this.#pointers.set(event.pointerId, now);
  }

  #up(event: PointerEvent): void {
    if (!this.#pointers.delete(event.pointerId)) return;
    this.#canvas.style.cursor = "";
    if (this.#dragDistance > DRAG_PIXELS || this.#pointers.size) return;
    const { x, y } = this.#at(event);
    const fold = this.#foldAt(x, y);
    if (fold >= 0) this.#events.fold?.(fold);
    else {
      const { box, wire } = this.#pick(x, y);
      if (wire >= 0) this.#events.wire?.(wire, event.shiftKey);
      else this.#events.click(box, event.shiftKey);
    }
  }

  /** Scrolls like a page, and lets the page scroll where the graph ends; with Ctrl or a pinch it zooms. */
  #wheel(event: WheelEvent): void {
    if (!this.scene) return;
    this.#following = false;
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE_PIXELS : 1;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      const { x, y } = this.#at(event);
      this.camera.zoomAt(x, y, Math.exp(-Math.min(60, Math.max(-60, event.deltaY * unit)) * 0.01));
      return;
    }
    const dx = (event.shiftKey && !event.deltaX ? event.deltaY : event.deltaX) * unit;
    const dy = (event.shiftKey && !event.deltaX ? 0 : event.deltaY) * unit;
    const world = this.camera.toScreen(this.scene.bounds);
    const room = {
      down: world.y + world.height - this.camera.height + PAD,
      up: PAD - world.y,
      right: world.x + world.width - this.camera.width + PAD,
      left: PAD - world.x,
    };
    const moveX = dx > 0 ? Math.min(dx, Math.max(0, room.right)) : -Math.min(-dx, Math.max(0, room.left));
    const moveY = dy > 0 ? Math.min(dy, Math.max(0, room.down)) : -Math.min(-dy, Math.max(0, room.up));
    if (Math.abs(moveX) < 0.5 && Math.abs(moveY) < 0.5) return;
    event.preventDefault();
    this.camera.pan(-moveX, -moveY);
  }

  #zoomTo(event: MouseEvent): void {
    if (!this.scene) return;
    const { x, y } = this.#at(event);
    if (this.#foldAt(x, y) >= 0) return;
    const { box } = this.#pick(x, y);
    if (box >= 0) this.zoomTo([this.scene.figures[box]!.box.id]);
    else this.camera.zoomAt(x, y, 1.5);
  }
}

import source from "worker:./worker.ts";
import type { LayoutInput, LayoutOutput, LayoutRequest, LayoutResponse } from "./types";

/** Lays graphs out in a worker that is started from the bundle itself, so that nothing is fetched. */
export class LayoutClient {
  readonly #worker: Worker;
  readonly #url: string;
  readonly #waiting = new Map<number, { done: (output: LayoutOutput) => void; fail: (error: Error) => void }>();
  #next = 0;

  constructor() {
    this.#url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    this.#worker = new Worker(this.#url);
    this.#worker.onmessage = ({ data }: MessageEvent<LayoutResponse>) => {
      const waiting = this.#waiting.get(data.id);
      this.#waiting.delete(data.id);
      if ("output" in data) waiting?.done(data.output);
      else waiting?.fail(new Error(`The layout of the graph failed: ${data.error}`));
    };
    this.#worker.onerror = (event) => {
      for (const { fail } of this.#waiting.values()) fail(new Error(`The layout worker stopped: ${event.message}`));
      this.#waiting.clear();
    };
  }

  layout(input: LayoutInput): Promise<LayoutOutput> {
    const request: LayoutRequest = { id: this.#next++, input };
    return new Promise((done, fail) => {
      this.#waiting.set(request.id, { done, fail });
      this.#worker.postMessage(request);
    });
  }

  stop(): void {
    this.#worker.terminate();
    URL.revokeObjectURL(this.#url);
  }
}

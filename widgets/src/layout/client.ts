import source from "worker:./worker.ts";
import type { LayoutInput, LayoutOutput, LayoutRequest, LayoutResponse } from "./types";

/** Lays graphs out in a worker that is started from the bundle itself, so that nothing is fetched. */
export class LayoutClient {
  readonly #worker: Worker;
  readonly #waiting = new Map<
    number,
    { done: (output: LayoutOutput) => void; fail: (error: Error) => void }
  >();
  #next = 0;

  constructor() {
    this.#worker = this.#start();
  }

  /** Starts at once, while the page goes on with what else has changed. */
  layout(input: LayoutInput): Promise<LayoutOutput> {
    const request: LayoutRequest = { id: this.#next++, input };
    return new Promise((done, fail) => {
      this.#waiting.set(request.id, { done, fail });
      this.#worker.postMessage(request);
    });
  }

  stop(): void {
    this.#worker.terminate();
  }

  #start(): Worker {
    const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    const worker = new Worker(url);
    worker.onmessage = ({ data }: MessageEvent<LayoutResponse>) => {
      const waiting = this.#waiting.get(data.id);
      this.#waiting.delete(data.id);
      if ("output" in data) waiting?.done(data.output);
      else waiting?.fail(new Error(`The layout of the graph failed: ${data.error}`));
    };
    worker.onerror = (event) => {
      for (const { fail } of this.#waiting.values()) {
        fail(new Error(`The layout worker stopped: ${event.message}`));
      }
      this.#waiting.clear();
    };
    return worker;
  }
}

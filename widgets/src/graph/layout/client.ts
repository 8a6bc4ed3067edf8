import source from "worker:./worker.ts";
import type { LayoutInput, LayoutOutput, LayoutRequest, LayoutResponse } from "./types";

interface Waiting {
  request: LayoutRequest;
  done: (output: LayoutOutput) => void;
  fail: (error: Error) => void;
  again: boolean;
}

/** Lays graphs out in a worker that is started from the bundle itself, so that nothing is fetched. */
export class LayoutClient {
  readonly #waiting = new Map<number, Waiting>();
  #worker = this.#start();
  #next = 0;
  /** Called with what the worker said when it stopped and another one goes on. */
  onRestart: (why: string) => void = () => {};

  layout(input: LayoutInput): Promise<LayoutOutput> {
    const request: LayoutRequest = { id: this.#next++, input };
    return new Promise((done, fail) => {
      this.#waiting.set(request.id, { request, done, fail, again: false });
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
    worker.onerror = ({ message }) => this.#restart(message || "no reason was given");
    return worker;
  }

  /** Goes on with what waits. What the worker was at is the oldest; over one graph it stops twice at most. */
  #restart(why: string): void {
    this.#worker.terminate();
    this.#worker = this.#start();
    const [oldest] = this.#waiting.values();
    if (oldest?.again) {
      this.#waiting.delete(oldest.request.id);
      oldest.fail(new Error(`The layout of the graph stopped twice: ${why}.`));
    } else if (oldest) oldest.again = true;
    for (const { request } of this.#waiting.values()) this.#worker.postMessage(request);
    this.onRestart(why);
  }
}

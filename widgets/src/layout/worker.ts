import { layout } from "./layout";
import type { LayoutRequest, LayoutResponse } from "./types";

const scope = self as unknown as {
  onmessage: (event: MessageEvent<LayoutRequest>) => void;
  postMessage: (message: LayoutResponse, transfer?: Transferable[]) => void;
};

scope.onmessage = ({ data: { id, input } }) => {
  try {
    const output = layout(input);
    const buffers = [output.x.buffer, output.y.buffer, output.points.buffer, output.offsets.buffer];
    scope.postMessage({ id, output }, buffers as ArrayBuffer[]);
  } catch (error) {
    scope.postMessage({ id, error: String(error instanceof Error ? (error.stack ?? error.message) : error) });
  }
};

import { layout } from "./layout";
import type { LayoutRequest, LayoutResponse } from "./types";

const scope = self as unknown as {
  onmessage: (event: MessageEvent<LayoutRequest>) => void;
  postMessage: (message: LayoutResponse, transfer?: Transferable[]) => void;
};

scope.onmessage = ({ data: { id, input } }) => {
  try {
    const output = layout(input);
    const { x, y, boxWidth, boxHeight, points, offsets } = output;
    const buffers = [x, y, boxWidth, boxHeight, points, offsets].map(({ buffer }) => buffer as ArrayBuffer);
    scope.postMessage({ id, output }, buffers);
  } catch (error) {
    scope.postMessage({ id, error: String(error instanceof Error ? (error.stack ?? error.message) : error) });
  }
};

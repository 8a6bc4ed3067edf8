/** A Bytes trait as it arrives from the kernel. */
export type Bytes = DataView | ArrayBuffer | Uint8Array;

/** Reads gzipped JSON; null where the trait is empty. The inverse of `encode` in rtlab/view/contract.py. */
export async function decode<T>(bytes: Bytes | null | undefined): Promise<T | null> {
  if (!bytes || bytes.byteLength === 0) return null;
  const view = ArrayBuffer.isView(bytes)
    ? new Uint8Array(bytes.buffer as ArrayBuffer, bytes.byteOffset, bytes.byteLength)
    : new Uint8Array(bytes);
  try {
    return (await gunzip(view).json()) as T;
  } catch (error) {
    throw new Error(
      `Cannot show these results: their ${bytes.byteLength} bytes are not gzipped JSON. ` +
        "Restart the kernel and run the cell again; a saved report must be written anew.",
      { cause: error },
    );
  }
}

export const fromBase64 = (text: string): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

/** Unpacks gzip. */
export function gunzip(bytes: Uint8Array<ArrayBuffer>): Response {
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}

export type Bytes = DataView | ArrayBuffer | Uint8Array;

/** Reads what `encode` in rtlab/documents/serialization.py wrote; null where the trait is empty. */
export async function decode<T>(bytes: Bytes | null | undefined): Promise<T | null> {
  if (!bytes || bytes.byteLength === 0) return null;
  const view = ArrayBuffer.isView(bytes)
    ? new Uint8Array(bytes.buffer as ArrayBuffer, bytes.byteOffset, bytes.byteLength)
    : new Uint8Array(bytes);
  try {
    return (await gunzip(view).json()) as T;
  } catch (error) {
    throw new Error(
      `Cannot show these results: their ${bytes.byteLength} bytes are damaged. ` +
        "Restart the kernel and run the cell again; a saved report must be written anew.",
      { cause: error },
    );
  }
}

export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  // A call for each letter of a report takes a tenth of a second.
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

export function gunzip(bytes: Uint8Array<ArrayBuffer>): Response {
  const { readable, writable } = new DecompressionStream("gzip");
  // Written at once: a blob would be read through the browser's own process, while the page waits.
  const writer = writable.getWriter();
  // Damaged bytes fail where the response is read.
  for (const written of [writer.write(bytes), writer.close()]) written.catch(() => {});
  return new Response(readable);
}

import { describe, expect, it } from "vitest";
import { LARGEST_DROP, openable, openError, readFiles, transferredFiles } from "../src/explorer/files";

const file = (name: string, size: number) => ({ name, size });

describe("files that are dropped", () => {
  it("travel under their names, in their order, byte for byte", async () => {
    // The kernel tells layers from a profile by content; an error names the file.
    const contents = { "engine.graph.json": [123, 125], "ビルド.log": [0, 255, 10], "empty.txt": [] };
    const files = Object.entries(contents).map(([name, bytes]) => new File([new Uint8Array(bytes)], name));
    const { names, buffers } = await readFiles(files);
    expect(Object.keys(contents)).toEqual(names);
    expect(Object.values(contents)).toEqual(buffers.map((buffer) => [...new Uint8Array(buffer)]));
  });

  it("are refused together once they are too large for one message", () => {
    // Jupyter closes the connection at a message that is too large, without a word.
    const half = LARGEST_DROP / 2;
    expect(null).toBe(openError([file("a", half), file("b", half)], false));
    const { kind, message } = openError([file("model.onnx", half), file("build.log", half + 1)], false)!;
    expect("Too large to drop").toBe(kind);
    expect(message).toContain('"model.onnx" and 1 other file: 10 MiB are more than the 9 MiB');
  });

  it("are told by name where it is one", () => {
    expect(openError([file("big.onnx", 2 * LARGEST_DROP)], false)!.message).toContain(
      'Cannot open "big.onnx": 18 MiB',
    );
  });

  it("wait for running work", () => {
    // Two at once would mix up what is on screen.
    expect(["Busy", null]).toEqual([
      openError([file("a.onnx", 1)], true)?.kind,
      openError([file("a.onnx", 1)], false),
    ]);
  });

  it("are kept by nobody where no kernel is, and the page says so", () => {
    const { kind, message } = openError(
      [file("a.onnx", 1)],
      true,
      "The kernel is gone: run the cells again",
    )!;
    expect(["No kernel", 'Cannot open "a.onnx". The kernel is gone: run the cells again.']).toEqual([
      kind,
      message,
    ]);
  });
});

const clipboard = (text: string, files: File[] = []) =>
  ({ files, getData: (type: string) => (type === "text/plain" ? text : "") }) as unknown as DataTransfer;

describe("a paste", () => {
  it("brings files, or its text as a file of its own", async () => {
    const [pasted] = transferredFiles(clipboard("Original: 9 layers\n"));
    expect("pasted.txt").toBe(pasted!.name);
    expect("Original: 9 layers\n").toBe(await pasted!.text());
    const given = new File(["x"], "a.json");
    expect([given]).toEqual(transferredFiles(clipboard("a.json", [given])));
  });

  it("of nothing brings no file", () => {
    expect([]).toEqual(transferredFiles(clipboard(" \n")));
    expect([]).toEqual(transferredFiles(null));
  });
});

describe("what is dragged", () => {
  it("can be opened where it is files or a selected text, and not where it is a link or a picture", () => {
    const dragged = (...types: string[]) => openable({ types });
    expect([true, true, true, false, false]).toEqual([
      dragged("Files"),
      dragged("text/plain", "text/html"),
      dragged("text/uri-list", "text/plain"),
      dragged("text/uri-list"),
      openable(null),
    ]);
  });
});

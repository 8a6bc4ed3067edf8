import { describe, expect, it } from "vitest";
import { meaning, pieces, setGlossary, termsOf } from "../src/core/glossary";
import { TERMS } from "./glossary";

setGlossary(TERMS);

const marked = (text: string): string =>
  pieces(text)
    .map(({ text: part, term }) => (term === undefined ? part : `[${part}:${TERMS[term]![0]}]`))
    .join("");

describe("terms in a text", () => {
  it("are found as they are written: in capitals, in the plural, under another name", () => {
    expect("[Layers:layer] of an [engine:engine]").toBe(marked("Layers of an engine"));
    expect("[ForeignNode:Myelin] and [int8:INT8]").toBe(marked("ForeignNode and int8"));
  });

  it("are marked where they stand first", () => {
    expect("a [node:node], a node").toBe(marked("a node, a node"));
  });

  it("are the longest that fit", () => {
    expect("[per-channel:per-channel] [scales:scale]").toBe(marked("per-channel scales"));
    expect("a [Q/DQ pair:Q/DQ]").toBe(marked("a Q/DQ pair"));
  });

  it("are no parts of names, paths, files and other words", () => {
    for (const text of [
      "/layer/conv",
      "layer1",
      "encoder.layer.0",
      "layers.json",
      "nodes_1",
      "relayer",
      "layer-wise",
    ])
      expect(text).toBe(marked(text));
  });

  it("leave every text as it reads", () => {
    for (const [name, text] of TERMS)
      expect(`${name}: ${text}`).toBe(
        pieces(`${name}: ${text}`)
          .map((p) => p.text)
          .join(""),
      );
  });
});

describe("the list of terms", () => {
  it("has each name and each spelling once", () => {
    const all = TERMS.flatMap(([name, _, ...spellings]) => [name, ...spellings]).map((word) =>
      word.toLowerCase(),
    );
    expect(all.length).toBe(new Set(all).size);
  });

  it("can be searched by what a term is called and by what it means", () => {
    expect(["amax"]).toEqual(
      termsOf("amax")
        .slice(0, 1)
        .map(([name]) => name),
    );
    expect(["SQNR"]).toEqual(termsOf("decibel noise").map(([name]) => name));
    expect(["Myelin"]).toEqual(termsOf("foreign node").map(([name]) => name));
    expect(TERMS.length).toBe(termsOf(" ").length);
    expect([]).toEqual(termsOf("no such word"));
  });

  it("tells what a heading means", () => {
    expect(meaning("SQNR, dB")).toContain("decibel");
    expect(meaning("Duration")).toBe("");
  });
});

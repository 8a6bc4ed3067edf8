/** A graph to lay out. Boxes and edges are positions in the arrays; sizes are in pixels at scale 1. */
export interface LayoutInput {
  width: Float32Array;
  height: Float32Array;
  /** 1 where a box is an input of the whole graph. */
  entry: Uint8Array;
  source: Int32Array;
  target: Int32Array;
  /** Edges with the same source and the same tensor may share a lane. */
  tensor: Int32Array;
}

/** Box centres and edge routes. An edge without points is a tunnel: a labelled stub at both ends. */
export interface LayoutOutput {
  x: Float32Array;
  y: Float32Array;
  /** Points of edge e: x, y pairs from `points[2 * offsets[e]]` to `points[2 * offsets[e + 1]]`. */
  points: Float32Array;
  offsets: Int32Array;
  width: number;
  height: number;
}

export interface LayoutRequest {
  id: number;
  input: LayoutInput;
}

export type LayoutResponse = { id: number; output: LayoutOutput } | { id: number; error: string };

/** A piece of the graph that is laid out on its own, in local positions. */
export interface Piece {
  width: number[];
  height: number[];
  source: number[];
  target: number[];
  tensor: number[];
  /** Pairs that only order ranks; nothing is drawn for them. */
  guards: [number, number][];
}

/** Ranks from the top, centre abscissae, and for each edge the abscissa of its lane on every rank between its ends. */
export interface Placement {
  rank: Int32Array;
  x: Float64Array;
  lanes: number[][];
}

/** Pixels between neighbours of a rank, and between ranks where edges run straight. */
export const GAP = { node: 22, lane: 12, rank: 20 };

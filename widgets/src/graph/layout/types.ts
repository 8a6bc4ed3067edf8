/**
 * A graph to lay out. Boxes and edges are positions in the arrays; sizes are in pixels at scale 1. A box that others
 * name as their parent is a frame: it grows around them, and its own size is the least it may have. Edges may join
 * any two boxes of which none stands in the other.
 */
export interface LayoutInput {
  width: Float32Array;
  height: Float32Array;
  /** 1 where a box is an input of the whole graph. */
  entry: Uint8Array;
  parent: Int32Array;
  source: Int32Array;
  target: Int32Array;
  /** Edges with the same source and the same tensor may share a lane. */
  tensor: Int32Array;
  /** From left to right instead of from top to bottom. */
  across: boolean;
}

/** Box centres, the sizes of boxes with those of frames grown, and edge routes. An edge without points is a tunnel. */
export interface LayoutOutput {
  x: Float32Array;
  y: Float32Array;
  boxWidth: Float32Array;
  boxHeight: Float32Array;
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
  width: ArrayLike<number>;
  height: ArrayLike<number>;
  source: ArrayLike<number>;
  target: ArrayLike<number>;
  /** Edges with the same source and the same tensor may share a lane. Small numbers. */
  tensor: ArrayLike<number>;
  /** How far from the middle of its source an edge leaves, and from that of its target it enters. */
  leaves: ArrayLike<number>;
  enters: ArrayLike<number>;
  /** Pairs that only order ranks; nothing is drawn for them. */
  guards: [number, number][];
  /** The one box that all paths come from, and the one where they end; -1 where there are several. */
  top: number;
  bottom: number;
}

/** Ranks from the top, centre abscissae, and for each edge the abscissa of its lane on every rank between its ends. */
export interface Placement {
  rank: Int32Array;
  x: Float64Array;
  lanes: number[][];
}

/** Pixels between neighbours of a rank, and between ranks where edges run straight. */
export const GAP = { node: 22, lane: 12, rank: 20 };

/** Pixels that a frame keeps free around its content, for its title above it, and between the two. */
export const FRAME = { pad: 12, head: 26, gap: 8 };

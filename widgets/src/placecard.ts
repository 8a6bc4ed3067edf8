import type { Rect } from "./draw/camera";

/** Pixels between a card and what it speaks of, and the edge of the place. */
const GAP = 14;

const overlap = (a: Rect, b: Rect): number =>
  Math.max(0, Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x)) *
  Math.max(0, Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y));

const distance = (a: Rect, b: Rect): number =>
  Math.hypot(a.x + a.width / 2 - b.x - b.width / 2, a.y + a.height / 2 - b.y - b.height / 2);

/** The smallest rectangles around those that overlap. */
export function merged(rects: readonly Rect[]): Rect[] {
  const found: Rect[] = [];
  for (const rect of rects) {
    const at = found.findIndex((other) => overlap(other, rect) > 0);
    if (at < 0) found.push(rect);
    else {
      const [{ x, y, width, height }] = found.splice(at, 1) as [Rect];
      const left = Math.min(x, rect.x);
      const top = Math.min(y, rect.y);
      const right = Math.max(x + width, rect.x + rect.width);
      const bottom = Math.max(y + height, rect.y + rect.height);
      // What it overlaps now may be one that stands already.
      return merged([
        ...found,
        { x: left, y: top, width: right - left, height: bottom - top },
        ...rects.slice(rects.indexOf(rect) + 1),
      ]);
    }
  }
  return found;
}

/**
 * Where a card stands beside what it speaks of: on a side of one of the spots where it covers least of them, as near to
 * the first as it can. All are in pixels of the place, which the card does not leave.
 */
export function placeCard(
  spots: readonly Rect[],
  card: { width: number; height: number },
  room: { width: number; height: number },
): { x: number; y: number } {
  const inside = (x: number, y: number): Rect => ({
    x: Math.max(GAP, Math.min(x, room.width - card.width - GAP)),
    y: Math.max(GAP, Math.min(y, room.height - card.height - GAP)),
    ...card,
  });
  const [first] = spots;
  if (!first) return { x: (room.width - card.width) / 2, y: (room.height - card.height) / 2 };
  const beside = spots.flatMap(({ x, y, width, height }) => [
    inside(x + width + GAP, y),
    inside(x + width + GAP, y + (height - card.height) / 2),
    inside(x - card.width - GAP, y + (height - card.height) / 2),
    inside(x + (width - card.width) / 2, y + height + GAP),
    inside(x + width - card.width, y + height + GAP),
    inside(x + (width - card.width) / 2, y - card.height - GAP),
  ]);
  const covered = (at: Rect): number => spots.reduce((sum, spot) => sum + overlap(at, spot), 0);
  const cost = (at: Rect): number => 1000 * covered(at) + distance(at, first);
  const { x, y } = beside.reduce((best, at) => (cost(at) < cost(best) ? at : best));
  return { x, y };
}

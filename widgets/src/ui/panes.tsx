import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Bench } from "../bench";
import type { Side } from "../contract";
import { Divider } from "./divider";
import { Pane } from "./pane";
import { Threads } from "./threads";

/** Below this width the panes stand above each other. */
const STACK = 660;
const LEAST = 0.15;
const START = 0.44;

interface Props {
  bench: Bench;
  empty: Record<Side, ComponentChildren>;
  stale?: boolean;
}

/** Both graphs with a movable line between them. */
export function Panes({ bench, empty, stale = false }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState({ width: 1, height: 1 });
  const [share, setShare] = useState(START);
  useEffect(() => {
    const el = box.current!;
    const observer = new ResizeObserver(() => setSize({ width: el.clientWidth, height: el.clientHeight }));
    observer.observe(el);
    return () => observer.disconnect();
  }, []);
  const stacked = size.width > 1 && size.width < STACK;
  const length = stacked ? size.height : size.width;
  const part = { flexBasis: `${100 * share}%` };
  return (
    <div class={`rt-panes ${stacked ? "rt-stacked" : ""}`} ref={box}>
      <div style={part}>
        <Pane bench={bench} side="node" empty={empty.node} />
      </div>
      <Divider
        label="Move the line between the graphs"
        axis={stacked ? "y" : "x"}
        value={100 * share}
        least={100 * LEAST}
        most={100 * (1 - LEAST)}
        onMove={(by) =>
          setShare((old) => Math.min(1 - LEAST, Math.max(LEAST, old + by / Math.max(1, length))))
        }
      />
      <div class="rt-grow">
        <Pane bench={bench} side="layer" empty={empty.layer} stale={stale} />
      </div>
      <Threads bench={bench} />
    </div>
  );
}

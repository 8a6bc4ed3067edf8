import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Close, Pause, Play } from "../ui/icons";
import { Tool } from "../ui/tool";
import { calm } from "./draw/camera";
import { Morph } from "./draw/morph";
import type { PaneSet } from "./paneset";

const PLAY_MS = 600;

/** Before into after, in the node pane: plays once when it opens, then stays where the slider stands. */
export function MorphBar({ paneSet }: { paneSet: PaneSet }) {
  const { study } = paneSet;
  const side = paneSet.sides.value.includes("layer") ? "layer" : "other";
  const [t, setT] = useState(0);
  const [playing, setPlaying] = useState(!calm());
  const before = paneSet.colours.node.look.value;
  const after = paneSet.colours[side].look.value;
  // A picture that is on its way is not the one to start from.
  const settled = study.pending.value === 0;
  const stage = paneSet.stages.node;
  const [a, b] = [stage?.scene, paneSet.stages[side]?.scene];
  const morph = useMemo(() => {
    if (!settled || !a || !b || !before || !after) return null;
    const links = study.mappingOf(side);
    const pairs = a.figures.flatMap(({ box }, i) =>
      links
        .layersOf(study.members("node", box.id))
        .flatMap((id): [number, number][] => (b.index.has(id) ? [[i, b.index.get(id)!]] : [])),
    );
    return new Morph(a, b, before, after, paneSet.theme.value, pairs);
  }, [settled, a, b, before, after, paneSet.theme.value]);
  const shown = useRef(t);
  shown.current = t;
  useEffect(() => {
    stage?.morph(morph, t);
    paneSet.onFrame();
  }, [stage, morph, t]);
  useEffect(() => () => stage?.morph(null), [stage]);
  useEffect(() => {
    if (!playing || !morph) return;
    let frame = 0;
    let last: number | null = null;
    const step = (now: number): void => {
      const next = Math.min(1, shown.current + (last === null ? 0 : now - last) / PLAY_MS);
      last = now;
      setT(next);
      if (next < 1) frame = requestAnimationFrame(step);
      else setPlaying(false);
    };
    frame = requestAnimationFrame(step);
    return () => cancelAnimationFrame(frame);
  }, [playing, morph]);
  const play = (): void => {
    if (t >= 1) setT(0);
    setPlaying(!playing);
  };
  return (
    <div class="rt-strip rt-morph" data-control="morph-bar">
      {!calm() && (
        <Tool
          label={playing ? "Pause" : "Play"}
          help="Nodes glide together to the layers that run them."
          control="morph-play"
          onClick={play}
          icon={playing ? <Pause /> : <Play />}
        />
      )}
      <span aria-hidden="true">nodes</span>
      <input
        type="range"
        min="0"
        max="1"
        step="0.01"
        value={t}
        aria-label="From nodes to layers"
        title="How far the nodes are on their way to the layers that run them"
        aria-valuetext={`${Math.round(100 * t)} % layers`}
        data-control="morph-slider"
        onInput={(event) => {
          setPlaying(false);
          setT(Number(event.currentTarget.value));
        }}
      />
      <span aria-hidden="true">layers</span>
      <Tool
        label="Close (Esc)"
        help="The graph of the nodes as it was."
        control="morph-close"
        onClick={() => {
          paneSet.morphing.value = false;
          paneSet.focusPane("node");
        }}
        icon={<Close />}
      />
    </div>
  );
}

import { useMemo } from "preact/hooks";
import type { ExplorerState } from "../explorerstate";
import { Chart, type Joint } from "./chart";

const LABELS = {
  timing: "Time of each layer",
  accuracy: "Signal to noise along the network",
};

interface Props {
  explorer: ExplorerState;
  name: keyof typeof LABELS;
  /** Which of the kernel's figures, where there are several of one thing. */
  figure?: string;
  hidden: boolean;
}

/** A chart of the variant shown whose points are its layers. */
export function LayerChart({ explorer, name, figure: drawn = name, hidden }: Props) {
  const { study } = explorer;
  const joint = useMemo(
    (): Joint => ({
      marked: () => new Set(study.view.value.layers),
      pointed: () => new Set(study.hovered("layer")),
      pick: (id, add) => study.select("layer", id, { add, reveal: true }),
      point: (id) => study.point(id === null ? undefined : "layer", id ?? ""),
    }),
    [],
  );
  // Charts of a model that is no longer on screen are gone with its engine.
  const figure = study.engine.value ? explorer.charts.value[drawn] : undefined;
  return (
    <Chart explorer={explorer} name={name} label={LABELS[name]} figure={figure} joint={joint} hidden={hidden}>
      <p class="rt-quiet">A chart appears here after the first build.</p>
    </Chart>
  );
}

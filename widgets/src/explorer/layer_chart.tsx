import { useMemo } from "preact/hooks";
import { Chart, type Joint } from "../ui/chart";
import type { ExplorerState } from "./explorer_state";

const LABELS = {
  timing: "Time of each layer",
  accuracy: "Signal to noise along the network",
};

interface Props {
  explorer: ExplorerState;
  name: keyof typeof LABELS;
  figure?: string;
  hidden: boolean;
}

export function LayerChart({ explorer, name, figure: figureName = name, hidden }: Props) {
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
  const figure = study.engine.value ? explorer.charts.value[figureName] : undefined;
  return (
    <Chart explorer={explorer} name={name} label={LABELS[name]} figure={figure} joint={joint} hidden={hidden}>
      <p class="rt-quiet">A chart appears here after the first build.</p>
    </Chart>
  );
}

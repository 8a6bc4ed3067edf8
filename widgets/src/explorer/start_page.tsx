import type { ExplorerState } from "./explorer_state";
import { OPENABLE } from "./files";
import { OpenFiles } from "./open_files";

const SAMPLES = 3;

export function Start({ explorer }: { explorer: ExplorerState }) {
  const why = explorer.busy();
  const samples = explorer.controls.value.models.filter(({ reason }) => !reason).slice(0, SAMPLES);
  return (
    <div class="rt-start">
      <h3>Open a model</h3>
      <div>
        {samples.map(({ id, label }) => (
          <button type="button" key={id} disabled={why !== ""} title={why} onClick={() => explorer.open(id)}>
            <svg viewBox="0 0 60 44" aria-hidden="true">
              <path d="M30 10v6M30 16C30 20 12 18 12 23M30 16v7M30 16c0 4 18 2 18 7M12 29c0 5 18 3 18 7M30 29v7M48 29c0 5-18 3-18 7" />
              <rect x="22" y="4" width="16" height="6" rx="2" />
              <rect x="4" y="23" width="16" height="6" rx="2" />
              <rect x="22" y="23" width="16" height="6" rx="2" />
              <rect x="40" y="23" width="16" height="6" rx="2" />
              <rect x="22" y="36" width="16" height="6" rx="2" />
            </svg>
            {label}
          </button>
        ))}
      </div>
      <p>or drop files here, or paste what you copied: {OPENABLE}</p>
      <OpenFiles explorer={explorer} />
    </div>
  );
}

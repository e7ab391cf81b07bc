import type { Refresh } from "../../hooks/refresh";
import { RATES } from "../../hooks/refresh";
import { Freshness } from "./Freshness";
import { Failure } from "../Notice";

/** Freezes what is shown, with the refresh rate, how old what is shown is, and why, where it is older than it should be. */
export function RefreshControl({
  refresh,
  updatedAt,
  error,
  waits = false,
  quiet = 0,
}: {
  refresh: Refresh;
  updatedAt: number;
  error: Error | null;
  /** Updates wait while something is selected or asked. */
  waits?: boolean;
  /** Seconds that may pass without an update because nothing happened. */
  quiet?: number;
}) {
  return (
    <div className="refresh" role="group" aria-label="Live updates">
      <Freshness
        updatedAt={updatedAt}
        error={error}
        paused={refresh.paused}
        waits={waits}
        seconds={Math.max(refresh.seconds, quiet)}
      />
      <button
        type="button"
        className="pause"
        aria-pressed={refresh.paused}
        onClick={() => refresh.pause(!refresh.paused)}
      >
        <svg className="icon" viewBox="0 0 16 16" aria-hidden="true">
          <path d={refresh.paused ? "M4 2l10 6-10 6z" : "M3 2h3.5v12H3zM9.5 2H13v12H9.5z"} />
        </svg>
        {refresh.paused ? "Unfreeze" : "Freeze"}
      </button>
      <label>
        <span className="label">every</span>{" "}
        <select value={refresh.seconds} onChange={(event) => refresh.setSeconds(event.target.value)}>
          {RATES.map((rate) => (
            <option key={rate} value={rate}>
              {rate} s
            </option>
          ))}
        </select>
      </label>
      {error !== null && updatedAt > 0 && (
        // Over the page, so that nothing in it moves.
        <div className="over">
          <Failure error={error} />
        </div>
      )}
    </div>
  );
}

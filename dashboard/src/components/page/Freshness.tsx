import { useNow } from "../../hooks/now";
import { duration } from "../../lib/format";

/** How old what is shown is: live, frozen by hand or while somebody acts, or stale. */
export function Freshness({
  updatedAt,
  error,
  paused,
  waits,
  seconds,
}: {
  updatedAt: number;
  error: Error | null;
  paused: boolean;
  /** Updates wait while something is selected or asked. */
  waits: boolean;
  /** Seconds between two updates. */
  seconds: number;
}) {
  const now = useNow();
  const age = Math.max(0, Math.round((now - updatedAt) / 1000));
  // Two updates may be late before it is said to be stale.
  const late = updatedAt > 0 && age > 2 * seconds + 3;
  const state =
    paused || waits ? "paused" : error !== null || late ? "stale" : updatedAt === 0 ? "waiting" : "live";
  const since = age < 60 ? `${age} s` : duration(age);
  const text = {
    live: "live",
    waiting: "waiting",
    paused: `${paused ? "frozen" : "waits"}, ${since} old`,
    stale: updatedAt === 0 ? "no data" : `last update ${since} ago`,
  }[state];
  return (
    <span className={`freshness ${state}`} title={error?.message} data-state={state}>
      <span className="dot" aria-hidden="true" />
      {text}
    </span>
  );
}

import type { Schemas } from "../api/client";
import { duration, percent } from "../lib/format";

type Trouble = Schemas["Health"]["troubles"][number];

const TROUBLES: Record<Trouble, string> = {
  "no-ticks": "No ticker runs: nothing expires.",
  "nearly-full": "Nearly full: soon tracks are rejected.",
  full: "Full: tracks are rejected.",
  "drain-behind": "Expired trees are drained too slowly.",
};

/** Whether a topology needs a human, in a word and a shape. known: whether that is so now. */
export function HealthBadge({ health, known }: { health: Schemas["Health"]; known: boolean }) {
  if (!known)
    return (
      <span className="health faint">
        <span aria-hidden="true">○</span> unknown
      </span>
    );
  const well = health.troubles.length === 0;
  return (
    <span className={`health ${well ? "well" : "ill"}`}>
      <span aria-hidden="true">{well ? "●" : "▲"}</span> {well ? "healthy" : "needs a look"}
    </span>
  );
}

export function Troubles({ health }: { health: Schemas["Health"] }) {
  if (health.troubles.length === 0) return null;
  return (
    <ul className="troubles">
      {health.troubles.map((trouble) => (
        <li key={trouble} title={TROUBLES[trouble]}>
          <span aria-hidden="true">▲</span> {TROUBLES[trouble]}
        </li>
      ))}
    </ul>
  );
}

/** How full something is, as a bar and in per cent. */
export function Meter({ value, label }: { value: number; label: string }) {
  return (
    <span className="meter">
      <meter min={0} max={1} high={0.8} optimum={0} value={Math.min(1, value)} aria-label={label} />
      <span>{percent(value)}</span>
    </span>
  );
}

/** Ticker, high-water use, drain backlog: what the health is made of. */
export function Vitals({ of }: { of: Schemas["TopologySummary"] }) {
  return (
    <dl className="facts">
      <div>
        <dt>Ticker</dt>
        <dd>
          {of.rotation_age === null
            ? "tracking is off"
            : of.health.ticking
              ? `alive, last tick ${duration(of.rotation_age)} ago`
              : `no tick for ${duration(of.rotation_age)}`}
        </dd>
      </div>
      <div>
        <dt>High-water use</dt>
        <dd>
          <Meter value={of.high_water_use} label={`High-water use of ${of.topology}`} />
        </dd>
      </div>
      <div>
        <dt>Drain backlog</dt>
        <dd>{of.backlog === 0 ? "none" : `${of.backlog} rotations`}</dd>
      </div>
    </dl>
  );
}

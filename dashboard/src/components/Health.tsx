import { Link } from "react-router";
import type { Schemas } from "../api/client";
import { capital, count, duration, instant, percent } from "../lib/format";

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

/** What needs a human: in words, and unless it is to be brief, since when, and what to do. */
export function Troubles({ health, brief = false }: { health: Schemas["Health"]; brief?: boolean }) {
  if (health.troubles.length === 0) return null;
  return (
    <ul className="troubles" aria-label="What needs a look">
      {health.troubles.map((trouble) => (
        <li key={trouble.code} data-trouble={trouble.code}>
          <span aria-hidden="true">▲</span>{" "}
          <span>
            {capital(trouble.text)}.{" "}
            {!brief && (
              <span className="advice">
                {trouble.since !== null && (
                  <>
                    Since <time dateTime={trouble.since}>{instant(trouble.since)}</time>.{" "}
                  </>
                )}
                {trouble.advice}
              </span>
            )}
          </span>
        </li>
      ))}
    </ul>
  );
}

/** The first trouble on one line, which leads to all of them. */
export function TroubleLine({ health }: { health: Schemas["Health"] }) {
  const [first, ...others] = health.troubles;
  if (first === undefined) return null;
  return (
    <a className="trouble-line" href="#health" title={first.text}>
      {capital(first.text)}
      {others.length > 0 && `, and ${others.length} more`}
    </a>
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
      <div>
        <dt>Rows behind</dt>
        <dd>{of.rows_behind === 0 ? "none" : count(of.rows_behind)}</dd>
      </div>
      <div>
        <dt>Dead letters</dt>
        <dd>
          {of.dead_letters === 0 ? (
            "none"
          ) : (
            <Link to={`/t/${of.topology}/dead-letters`}>{count(of.dead_letters)}</Link>
          )}
        </dd>
      </div>
    </dl>
  );
}

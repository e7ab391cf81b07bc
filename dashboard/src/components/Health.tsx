import { Link } from "react-router";
import type { Schemas } from "../api/client";
import { useNow } from "../hooks/now";
import { brief, capital, count, duration, instant, percent } from "../lib/format";
import { printable } from "../lib/text";
import { compared } from "../lib/triage";

type Health = Schemas["Health"];
type Judged = Pick<Health, "troubles" | "muted">;

/** The shape and the words of each severity. */
const LEVELS: Record<Health["severity"], { sign: string; words: string; kind: string }> = {
  critical: { sign: "▲", words: "critical", kind: "critical" },
  look: { sign: "▲", words: "needs a look", kind: "ill" },
  muted: { sign: "◌", words: "muted", kind: "faint" },
  well: { sign: "●", words: "healthy", kind: "well" },
};

/** Whether a topology needs a human, in a word and a shape. known: whether that is so now. */
export function HealthBadge({ health, known }: { health: Health; known: boolean }) {
  if (!known)
    return (
      <span className="health faint">
        <span aria-hidden="true">○</span> unknown
      </span>
    );
  const { sign, words, kind } = LEVELS[health.severity];
  return (
    <span className={`health ${kind}`}>
      <span aria-hidden="true">{sign}</span> {words}
    </span>
  );
}

/** Troubles, each with since when, and what to do. Then what is muted. */
export function Troubles({ health }: { health: Judged }) {
  const now = useNow();
  return (
    <>
      {health.troubles.length > 0 && (
        <ul className="troubles" aria-label="What needs a look">
          {health.troubles.map((trouble) => (
            <li key={trouble.code} data-trouble={trouble.code} className={trouble.severity}>
              <span aria-hidden="true">▲</span>{" "}
              <span>
                {capital(trouble.text)}.{" "}
                <span className="advice">
                  <Since since={trouble.since} now={now} /> {compared(trouble)}
                  {trouble.advice}
                </span>
              </span>
            </li>
          ))}
        </ul>
      )}
      {health.muted.length > 0 && (
        <ul className="muted" aria-label="Muted">
          {health.muted.map((one) => (
            <li key={one.code} data-muted={one.code}>
              <span aria-hidden="true">◌</span>{" "}
              <span>
                <MutedWords of={one} />
              </span>
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

/** What a muted trouble would say, and who has muted it, until when and why. */
export function MutedWords({ of }: { of: Schemas["Muted"] }) {
  return (
    <>
      {capital(of.text)}. {of.code === "paused" ? "Paused" : "Muted"}
      {of.by && ` by ${printable(of.by)}`}
      {of.until !== null && (
        <>
          {" "}
          until <time dateTime={of.until}>{instant(of.until)}</time>
        </>
      )}
      {of.reason && `: ${printable(of.reason)}`}.
    </>
  );
}

/** Since when, and how long that is. */
export function Since({ since, now }: { since: string | null; now: number }) {
  if (since === null) return null;
  return (
    <>
      Since <time dateTime={since}>{instant(since)}</time>, for{" "}
      {brief(Math.max(0, (now - Date.parse(since)) / 1000))}.
    </>
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

/** Ticker, high-water use, drain backlog: what the health is made of. known: whether that is so now. */
export function Vitals({ of, known }: { of: Schemas["TopologySummary"]; known: boolean }) {
  return (
    <dl className="facts">
      <div>
        <dt>Ticker</dt>
        <dd>
          {of.rotation_age === null
            ? "tracking is off"
            : !known
              ? "unknown"
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
        <dd>{of.backlog === 0 ? <None /> : `${of.backlog} rotations`}</dd>
      </div>
      <div>
        <dt>Rows behind</dt>
        <dd>{of.rows_behind === 0 ? <None /> : count(of.rows_behind)}</dd>
      </div>
      <div>
        <dt>Dead letters</dt>
        <dd>
          {of.dead_letters === 0 ? (
            <None />
          ) : (
            <Link to={`/t/${of.topology}/dead-letters`}>{count(of.dead_letters)}</Link>
          )}
        </dd>
      </div>
    </dl>
  );
}

/** Steps back: there is nothing to see. */
function None() {
  return <span className="faint">none</span>;
}

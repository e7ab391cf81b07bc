import type { Schemas } from "../../api/client";
import { Field } from "../../components/Fields";
import { Loaded } from "../../components/Notice";
import type { Refresh } from "../../hooks/refresh";
import { useUrl } from "../../hooks/url";
import { count, instant } from "../../lib/format";
import { COUNTS } from "../../lib/series";
import { useMemo } from "react";
import { Charts } from "./Charts";
import { useMarks } from "./Marks";
import { BEFORE, moved, parseRange, RANGES, rangeWords, spanName, untilName, type Range } from "./range";
import { useBefore, useStats } from "./stats";

const DEFAULTS = { window: "10m", until: "", compare: "" };

/** The history of a topology over a range of time: its totals and its charts. */
export function History({ topology, refresh }: { topology: string; refresh: Refresh }) {
  const [url, change] = useUrl(DEFAULTS);
  const range = useMemo(() => parseRange(url.window, url.until), [url.window, url.until]);
  const compared = BEFORE[url.compare];
  const { stats, connection } = useStats(topology, range, refresh);
  const before = useBefore(topology, range, compared?.shift ?? 0, refresh.paused);
  const earlier = useMemo(
    () => (compared === undefined ? null : { ...compared, stats: before }),
    [compared, before],
  );
  const marks = useMarks(topology, range, refresh.paused);
  const show = ({ name, until }: Range) => change({ window: name, until: untilName(until) });
  const zoom = (from: number, to: number) => {
    const name = spanName(to - from);
    // A span of less than a minute is drawn in its middle.
    const until = (from + to) / 2 + parseRange(name, "").span / 2;
    show(parseRange(name, untilName(until)));
  };
  return (
    <section aria-label="History">
      <div className="toolbar">
        <div className="segments ranges" role="group" aria-label="Range">
          {RANGES.map(([name, words]) => (
            <button
              key={name}
              type="button"
              aria-pressed={name === range.name}
              onClick={() => change({ window: name })}
            >
              {words}
            </button>
          ))}
        </div>
        <div className="segments" role="group" aria-label="End">
          <button type="button" onClick={() => show(moved(range, -1, Date.now() / 1000))}>
            Earlier
          </button>
          <button
            type="button"
            disabled={range.until === null}
            onClick={() => show(moved(range, 1, Date.now() / 1000))}
          >
            Later
          </button>
          <button type="button" aria-pressed={range.until === null} onClick={() => change({ until: "" })}>
            Now
          </button>
        </div>
        <Field label="Compare with">
          <select value={url.compare} onChange={(event) => change({ compare: event.target.value })}>
            <option value="">nothing</option>
            {Object.entries(BEFORE).map(([name, { words }]) => (
              <option key={name} value={name}>
                {words}
              </option>
            ))}
          </select>
        </Field>
        <span className="faint" data-connection={connection}>
          {range.until !== null
            ? `${rangeWords(range)}, until ${instant(untilName(range.until))}`
            : connection === "lost"
              ? "no live events: read again every few seconds"
              : ""}
        </span>
      </div>
      <Loaded query={stats} what="the history">
        {stats.data && (
          <>
            <Totals of={stats.data} window={rangeWords(range)} />
            <Charts stats={stats.data} range={range} earlier={earlier} marks={marks} zoom={zoom} />
          </>
        )}
      </Loaded>
    </section>
  );
}

function Totals({ of, window }: { of: Schemas["Stats"]; window: string }) {
  return (
    <dl className="panel figures totals" aria-label={`Totals, ${window}`}>
      {COUNTS.map((name) => (
        <div key={name} className={of.totals[name] === 0 ? "zero" : undefined}>
          <dt>{name}</dt>
          <dd>{count(of.totals[name])}</dd>
        </div>
      ))}
    </dl>
  );
}

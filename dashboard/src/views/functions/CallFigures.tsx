import type { Schemas } from "../../api/client";
import { compact, count, duration } from "../../lib/format";
import { Mark, type Kind } from "../../components/Mark";

/** What became of the calls of a time, and how long those took that had a result. */
export function CallFigures({ of, label }: { of: Schemas["CallCounts"]; label: string }) {
  const figures: [Kind, string, number][] = [
    ["acked", "answered", of.answered],
    ["failed", "failed", of.failed],
    ["expired", "timed out", of.timed_out],
  ];
  const latencies: [string, number | null][] = [
    ["p50", of.latency.p50],
    ["p95", of.latency.p95],
    ["p99", of.latency.p99],
  ];
  return (
    <dl className="figures calls" aria-label={label}>
      {figures.map(([kind, name, value]) => (
        <div key={name}>
          <dt>
            <Mark kind={kind} />
            {name}
          </dt>
          <dd title={count(value)}>{value < 100_000 ? count(value) : compact(value)}</dd>
        </div>
      ))}
      {latencies.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{duration(value)}</dd>
        </div>
      ))}
    </dl>
  );
}

import { useMemo } from "react";
import { Chart } from "./Chart";
import { Marks } from "./Marks";
import type { ChartMark } from "./marks";
import type { Line } from "./plot";
import { compact, duration } from "../../lib/format";
import { BUCKETS, counted, PERCENTILES, rates, type Stats } from "../../lib/series";

const DASH = [6, 4];
const DOTS = [2, 3];
const LONG = [10, 3];

const BUCKET_NAMES = { nursery: "nursery", middle: "middle", oldest: "oldest", expiring: "expiring next" };
const PER_STEP: Record<number, string> = {
  1: "each second",
  10: "each 10 s",
  60: "each minute",
  600: "each 10 min",
  3600: "each hour",
};

/** The charts of a window, and the marks on them. */
export function Charts({ stats, span, marks }: { stats: Stats; span: number; marks: readonly ChartMark[] }) {
  const at = useMemo(() => stats.at.map((one) => Date.parse(one) / 1000), [stats.at]);
  const lines = useMemo(() => chartLines(stats), [stats]);
  const each = PER_STEP[stats.step] ?? `each ${stats.step} s`;
  if (at.length === 0) return <div className="notice empty">Nothing was counted in this window.</div>;
  const common = { at, span, marks };
  return (
    <>
      <div className="charts">
        <Chart
          {...common}
          title="Throughput"
          unit="trees a second"
          lines={lines.throughput}
          format={compact}
        />
        <Chart
          {...common}
          title="In flight by bucket"
          unit="trees"
          lines={lines.buckets}
          format={compact}
          stacked
        />
        <Chart
          {...common}
          title="Expirations"
          unit={`trees, ${each}`}
          lines={lines.expirations}
          format={compact}
        />
        <Chart
          {...common}
          title="Complete latency"
          unit="from track to ack"
          lines={lines.latency}
          format={duration}
        />
        <Chart
          {...common}
          title="Late, orphaned, duplicate"
          unit={each}
          lines={lines.strays}
          format={compact}
        />
      </div>
      <Marks of={marks.filter((mark) => mark.at >= (at.at(-1) ?? 0) - span)} topology={stats.topology} />
    </>
  );
}

function chartLines(
  stats: Stats,
): Record<"throughput" | "expirations" | "buckets" | "latency" | "strays", Line[]> {
  const rate = (counts: number[]) => rates(counts, stats.seconds);
  const number = (counts: number[]) => counted(counts, stats.seconds);
  const dashes = [undefined, DASH, DOTS];
  return {
    throughput: [
      { label: "tracked", colour: "tracked", dash: DOTS, values: rate(stats.tracked) },
      { label: "acked", colour: "acked", values: rate(stats.acked) },
      { label: "failed", colour: "failed", dash: DASH, values: rate(stats.failed) },
      { label: "rejected", colour: "rejected", dash: LONG, values: rate(stats.rejected) },
    ],
    expirations: [{ label: "expired", colour: "expired", values: number(stats.expired) }],
    buckets: BUCKETS.map((bucket, index) => ({
      label: BUCKET_NAMES[bucket],
      colour: `bucket-${index + 1}`,
      values: stats.buckets[bucket] ?? [],
    })),
    latency: PERCENTILES.map((name, index) => ({
      label: name,
      colour: `latency-${index + 1}`,
      ...(dashes[index] ? { dash: dashes[index] } : {}),
      values: stats.latency[name],
    })),
    strays: [
      { label: "late", colour: "late", values: number(stats.late) },
      { label: "orphaned", colour: "orphaned", dash: DASH, values: number(stats.orphaned) },
      { label: "duplicate", colour: "duplicates", dash: DOTS, values: number(stats.duplicates) },
    ],
  };
}

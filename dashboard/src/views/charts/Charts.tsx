import { useMemo } from "react";
import { Chart } from "./Chart";
import { Marks } from "./Marks";
import type { ChartMark } from "./marks";
import type { Line } from "./plot";
import type { Range } from "./range";
import { compact, duration } from "../../lib/format";
import { before, BUCKETS, counted, PERCENTILES, rates, type Stats } from "../../lib/series";

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

/** The charts of a range, the same hours earlier, and the marks. */
export function Charts({
  stats,
  range: { span, until },
  earlier,
  marks,
  zoom,
}: {
  stats: Stats;
  range: Range;
  /** The same hours some seconds before. */
  earlier: { stats: Stats | undefined; shift: number; words: string } | null;
  marks: readonly ChartMark[];
  zoom: (from: number, to: number) => void;
}) {
  const at = useMemo(() => stats.at.map((one) => Date.parse(one) / 1000), [stats.at]);
  const lines = useMemo(() => chartLines(stats), [stats]);
  const pale = useMemo(() => earlierLines(at, stats.step, earlier), [at, stats.step, earlier]);
  const each = PER_STEP[stats.step] ?? `each ${duration(stats.step)}`;
  const end = until ?? Infinity;
  const shown = useMemo(
    () => marks.filter((mark) => mark.at >= (at.at(-1) ?? 0) - span && mark.at <= end),
    [marks, at, span, end],
  );
  if (at.length === 0) return <div className="notice empty">Nothing was counted in this range.</div>;
  const common = { at, span, until, marks: shown, zoom };
  return (
    <>
      <div className="charts">
        <Chart
          {...common}
          title="Throughput"
          unit="trees a second"
          lines={lines.throughput}
          before={pale.throughput}
          format={compact}
        />
        <Chart
          {...common}
          title="In flight by bucket"
          unit="trees"
          lines={lines.buckets}
          before={pale.buckets}
          format={compact}
          stacked
        />
        <Chart
          {...common}
          title="Expirations"
          unit={`trees, ${each}`}
          lines={lines.expirations}
          before={pale.expirations}
          format={compact}
        />
        <Chart
          {...common}
          title="Complete latency"
          unit="from track to ack"
          lines={lines.latency}
          before={pale.latency}
          format={duration}
        />
        <Chart
          {...common}
          title="Late, orphaned, duplicate"
          unit={each}
          lines={lines.strays}
          before={pale.strays}
          format={compact}
        />
      </div>
      <Marks of={shown} topology={stats.topology} />
    </>
  );
}

/** A pale line for each chart: what says most of it, in the same hours earlier; null where nothing is compared. */
function earlierLines(
  at: number[],
  step: number,
  earlier: { stats: Stats | undefined; shift: number; words: string } | null,
): Record<"throughput" | "expirations" | "buckets" | "latency" | "strays", Line | null> {
  const line = (label: string, take: (stats: Stats) => (number | null)[]): Line | null => {
    if (earlier === null) return null;
    const { stats, shift, words } = earlier;
    const values = stats === undefined ? at.map(() => null) : before(at, stats, take(stats), shift);
    return { label: `${label}, ${words}`, colour: "before", values };
  };
  // What is kept of then may be coarser: the mean of what was counted in as long a time.
  const each = (counts: number[], stats: Stats) =>
    rates(counts, stats.seconds).map((rate) => (rate === null ? null : rate * step));
  return {
    throughput: line("acked", (stats) => rates(stats.acked, stats.seconds)),
    expirations: line("expired", (stats) => each(stats.expired, stats)),
    buckets: line("in flight", (stats) => stats.pending),
    latency: line("p95", (stats) => stats.latency.p95),
    strays: line("late", (stats) => each(stats.late, stats)),
  };
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

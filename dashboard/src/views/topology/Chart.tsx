import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "react";
import { useDrawnTheme } from "../../hooks/theme";
import { NOTHING, time, instant } from "../../lib/format";

export interface Line {
  label: string;
  /** The name of a colour of the style sheet, without its dashes. */
  colour: string;
  /** Lengths of strokes and gaps, so that lines can be distinguished without colour. */
  dash?: number[];
  values: (number | null)[];
}

interface Props {
  title: string;
  /** What the values are, said once beside the title. */
  unit: string;
  /** Seconds since 1970 of each point. */
  at: number[];
  lines: Line[];
  format: (value: number | null | undefined) => string;
  /** Seconds that the chart spans, up to the last point. */
  span: number;
  /** Whether the lines lie on top of each other, their sum being the height. */
  stacked?: boolean;
}

const HEIGHT = 170;
const AXIS = 58;
/** The cursors of all charts move together. */
const SYNC = "acker";

/** Where lines are stacked, each stands on the sum of those before it. */
export function stack(lines: readonly (number | null)[][]): (number | null)[][] {
  let below: (number | null)[] = [];
  return lines.map((values) => {
    below = values.map((value, index) => (value === null ? null : value + (below[index] ?? 0)));
    return below;
  });
}

/** A colour of the style sheet as the canvas understands it. */
function colour(element: Element, name: string): string {
  const probe = document.createElement("i");
  probe.className = `colour-${name}`;
  element.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function data({ at, lines, stacked }: Props): uPlot.AlignedData {
  const values = lines.map((line) => line.values);
  return [at, ...(stacked ? stack(values) : values)];
}

/** A chart with a read-out: of the point under the cursor, else of the latest. Arrow keys move the cursor. */
export function Chart(props: Props) {
  const { title, unit, at, lines, format, span, stacked = false } = props;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  const heading = useId();
  const theme = useDrawnTheme();
  const [cursor, setCursor] = useState<number | null>(null);
  useLayoutEffect(() => {
    latest.current = props;
  });

  const names = lines.map((line) => line.label).join();
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const ink = colour(element, "faint");
    const grid = { stroke: colour(element, "line"), width: 1 };
    const made = latest.current;
    const axis = { stroke: ink, grid, ticks: { ...grid, size: 4 }, font: "11px system-ui, sans-serif" };
    const chart = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { sync: { key: SYNC }, drag: { x: false, y: false }, points: { size: 6 } },
        scales: {
          x: {
            range: () => {
              const end = latest.current.at.at(-1) ?? Date.now() / 1000;
              const begin = latest.current.at[0] ?? end - latest.current.span;
              // A history that is younger than the longest window is shown whole, not in a corner.
              return [
                latest.current.span > 86_400 ? Math.min(begin, end - 3600) : end - latest.current.span,
                end,
              ];
            },
          },
          y: { range: (_, __, most) => [0, most > 0 ? most * 1.08 : 1] },
        },
        axes: [
          {
            ...axis,
            size: 30,
            space: 80,
            values: [
              [86_400, "{D} {MMM}", null, null, null, null, null, null, 1],
              [3600, "{HH}:{mm}", "\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1],
              [60, "{HH}:{mm}", null, null, null, null, null, null, 1],
              [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1],
            ],
          },
          {
            ...axis,
            size: AXIS,
            space: 36,
            values: (_, ticks) => ticks.map((tick) => latest.current.format(tick)),
          },
        ],
        series: [
          {},
          ...made.lines.map((line): uPlot.Series => {
            const stroke = colour(element, line.colour);
            return {
              label: line.label,
              stroke,
              // A layer of nothing is to be seen as nothing: only areas, no lines.
              width: made.stacked ? 0 : 1.75,
              ...(line.dash ? { dash: line.dash } : {}),
              ...(made.stacked && line === made.lines[0] ? { fill: stroke } : {}),
              points: { show: false },
              // A step without a value is a gap, and a single value between gaps is still seen.
              spanGaps: false,
            };
          }),
        ],
        ...(made.stacked
          ? {
              bands: made.lines.slice(1).map((line, index) => ({
                series: [index + 2, index + 1] as [number, number],
                fill: colour(element, line.colour),
              })),
            }
          : {}),
        hooks: { setCursor: [(self) => setCursor(self.cursor.idx ?? null)] },
      },
      data(made),
      element,
    );
    plot.current = chart;
    const observer = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      chart.destroy();
      plot.current = null;
    };
  }, [theme, names, stacked]);

  useEffect(() => {
    plot.current?.setData(data(latest.current));
  }, [at, lines, stacked]);

  const index = cursor !== null && cursor < at.length ? cursor : at.length - 1;
  const moment = at[index];
  const move = (step: number) => {
    const chart = plot.current;
    if (chart === null || at.length === 0) return;
    const to = Math.max(0, Math.min(at.length - 1, index + step));
    chart.setCursor({ left: chart.valToPos(at[to] ?? 0, "x"), top: 1 });
  };
  return (
    <figure className="chart" aria-labelledby={heading}>
      <figcaption>
        <h2 id={heading}>{title}</h2>
        <span className="faint">{unit}</span>
        <time className="faint">
          {moment === undefined
            ? NOTHING
            : (span > 86_400 ? instant : time)(new Date(moment * 1000).toISOString())}
        </time>
      </figcaption>
      <ul className="legend">
        {lines.map((line) => (
          <li key={line.label}>
            <svg viewBox="0 0 22 8" className={`swatch colour-${line.colour}`} aria-hidden="true">
              {stacked ? (
                <path className="area" d="M0 0h22v8H0z" />
              ) : (
                <path d="M0 4h22" strokeDasharray={line.dash?.join(" ")} />
              )}
            </svg>
            {line.label} <b>{format(line.values[index])}</b>
          </li>
        ))}
      </ul>
      <div
        ref={box}
        className="plot"
        role="slider"
        tabIndex={0}
        aria-label={`${title}: point in time`}
        aria-valuemin={0}
        aria-valuemax={Math.max(0, at.length - 1)}
        aria-valuenow={Math.max(0, index)}
        aria-valuetext={
          moment === undefined
            ? "no data"
            : `${time(new Date(moment * 1000).toISOString())}: ${lines
                .map((line) => `${line.label} ${format(line.values[index])}`)
                .join(", ")}`
        }
        onKeyDown={(event) => {
          const step = {
            ArrowLeft: -1,
            ArrowRight: 1,
            PageUp: -10,
            PageDown: 10,
            Home: -at.length,
            End: at.length,
          }[event.key];
          if (step === undefined) return;
          event.preventDefault();
          move(step);
        }}
        onBlur={() => plot.current?.setCursor({ left: -10, top: -10 })}
      />
    </figure>
  );
}

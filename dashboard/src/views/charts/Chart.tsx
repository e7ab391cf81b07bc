import type uPlot from "uplot";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "react";
import { useDrawnTheme } from "../../hooks/theme";
import { NOTHING, time, instant } from "../../lib/format";
import { near, next, type ChartMark } from "./marks";
import { draw, drawnData, HEIGHT, moveCursor, type Drawn } from "./plot";

interface Props extends Drawn {
  title: string;
  /** What the values are, said once beside the title. */
  unit: string;
  /** Somebody has drawn a span on it: Unix seconds. */
  zoom: (from: number, to: number) => void;
}

/** A place under the cursor: the index of its point, whether it is in the right half, and its marks. */
interface Place {
  index: number;
  right: boolean;
  marks: readonly ChartMark[];
}

/** A chart with a read-out: of the point under the cursor, else of the latest. Arrow keys move the cursor. */
export function Chart(props: Props) {
  const { title, unit, at, lines, format, span, marks, stacked = false, before = null } = props;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  /** The moment to which somebody has moved by the keyboard: between two points of a coarse chart is a mark. */
  const reached = useRef<number | null>(null);
  const heading = useId();
  const theme = useDrawnTheme();
  const [cursor, setCursor] = useState<Place | null>(null);
  useLayoutEffect(() => {
    latest.current = props;
  });

  const shown = before === null ? lines : [...lines, before];
  const names = shown.map((line) => line.label).join();
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const chart = draw(
      element,
      () => latest.current,
      (self) => setCursor(placeOf(self, latest.current.marks)),
      (from, to) => latest.current.zoom(from, to),
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
    plot.current?.setData(drawnData(latest.current));
  }, [at, lines, stacked, before, marks]);

  const index = cursor !== null && cursor.index < at.length ? cursor.index : at.length - 1;
  const moment = at[index];
  const go = (to: number) => {
    const chart = plot.current;
    if (chart === null) return;
    reached.current = to;
    moveCursor(chart, chart.valToPos(to, "x"));
  };
  const said = cursor?.marks ?? [];
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
        {shown.map((line) => (
          <li key={line.label}>
            <svg viewBox="0 0 22 8" className={`swatch colour-${line.colour}`} aria-hidden="true">
              {stacked && line !== before ? (
                <path className="area" d="M0 0h22v8H0z" />
              ) : (
                <path d="M0 4h22" strokeDasharray={line.dash?.join(" ")} />
              )}
            </svg>
            {line.label} <b>{format(line.values[index])}</b>
          </li>
        ))}
      </ul>
      <div className="plot-frame">
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
              : [
                  `${time(new Date(moment * 1000).toISOString())}: ${shown
                    .map((line) => `${line.label} ${format(line.values[index])}`)
                    .join(", ")}`,
                  ...said.map((mark) => `${time(new Date(mark.at * 1000).toISOString())} ${mark.text}`),
                ].join("; ")
          }
          onKeyDown={(event) => {
            // A mark of just now may be later than the last point.
            const from = reached.current ?? (cursor === null ? Infinity : (moment ?? 0));
            const aside = { ArrowLeft: -1, ArrowRight: 1 }[event.key] as 1 | -1 | undefined;
            if (event.shiftKey && aside !== undefined) {
              event.preventDefault();
              const mark = next(marks, from, aside);
              if (mark !== undefined) go(mark.at);
              return;
            }
            const step = { PageUp: -10, PageDown: 10, Home: -at.length, End: at.length }[event.key] ?? aside;
            if (step === undefined) return;
            event.preventDefault();
            const to = at[Math.max(0, Math.min(at.length - 1, index + step))];
            if (to !== undefined) go(to);
          }}
          onPointerMove={() => {
            reached.current = null;
          }}
          onBlur={() => {
            reached.current = null;
            if (plot.current !== null) moveCursor(plot.current, null);
          }}
        />
        {said.length > 0 && cursor !== null && (
          <ul className={cursor.right ? "said left" : "said"}>
            {said.map((mark) => (
              <li key={mark.id} className={`mark-${mark.kind}`}>
                <b>{time(new Date(mark.at * 1000).toISOString())}</b> {mark.text}
              </li>
            ))}
          </ul>
        )}
      </div>
    </figure>
  );
}

/** The place under the cursor of a chart; null where there is none. */
function placeOf(plot: uPlot, marks: readonly ChartMark[]): Place | null {
  const { idx: index, left } = plot.cursor;
  if (index == null || left === undefined || left < 0) return null;
  const { min = 0, max = 0 } = plot.scales.x ?? {};
  const shown = marks.filter(({ at }) => at >= min && at <= max);
  const there = near(
    shown,
    { left, index },
    (at) => plot.valToPos(at, "x"),
    (at) => plot.valToIdx(at),
  );
  return { index, right: left > plot.over.clientWidth / 2, marks: there };
}

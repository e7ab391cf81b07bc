/** A chart's drawing: lines or a stack of areas, two axes, a cursor, and marks. */

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { ChartMark } from "./marks";

export interface Line {
  label: string;
  /** The name of a colour of the style sheet, without its dashes. */
  colour: string;
  /** Lengths of strokes and gaps, so that lines can be distinguished without colour. */
  dash?: number[];
  values: (number | null)[];
}

export interface Drawn {
  /** Seconds since 1970 of each point. */
  at: number[];
  lines: Line[];
  format: (value: number | null | undefined) => string;
  /** Seconds that the chart spans, up to the last point. */
  span: number;
  /** Unix seconds at which it ends, if not with the last point. */
  until: number | null;
  /** Whether the lines lie on top of each other, their sum being the height. */
  stacked?: boolean;
  /** A paler line, which is not stacked: the same hours earlier. */
  before?: Line | null;
  /** In the order of time. */
  marks: readonly ChartMark[];
}

export const HEIGHT = 176;
/** Least pixels of the axis on the left, and those beside its longest label. */
const AXIS = 46;
const MARGIN = 14;
/** Most seconds for which a mark is waited for by its point. */
const FRESH = 30;
/** The cursors of all charts move together. */
const SYNC = "acker";
const MARK_DASHES: Record<ChartMark["kind"], number[]> = { mark: [], settings: [6, 3], write: [2, 3] };

/** Where lines are stacked, each stands on the sum of those before it. */
export function stack(lines: readonly (number | null)[][]): (number | null)[][] {
  let below: (number | null)[] = [];
  return lines.map((values) => {
    below = values.map((value, index) => (value === null ? null : value + (below[index] ?? 0)));
    return below;
  });
}

export function drawnData({ at, lines, stacked, before }: Drawn): uPlot.AlignedData {
  const values = lines.map((line) => line.values);
  return [at, ...(stacked ? stack(values) : values), ...(before ? [before.values] : [])];
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

/**
 * Draws into an element what `latest` gives then, and afterwards, when it is told of new data. `moved`: the cursor is
 * elsewhere. `chosen`: somebody has drawn a span with the pointer, in Unix seconds.
 */
export function draw(
  element: HTMLElement,
  latest: () => Drawn,
  moved: (plot: uPlot) => void,
  chosen: (from: number, to: number) => void,
): uPlot {
  const ink = colour(element, "faint");
  const grid = { stroke: colour(element, "line"), width: 1 };
  const { lines, stacked, before } = latest();
  const axis = { stroke: ink, grid, ticks: { ...grid, size: 4 }, font: "11px system-ui, sans-serif" };
  return new uPlot(
    {
      width: element.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      cursor: {
        // What somebody draws on one chart is drawn once.
        sync: { key: SYNC, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
        drag: { x: true, y: false, setScale: false, dist: 8 },
        points: { size: 6 },
      },
      scales: {
        x: {
          range: () => {
            const { at, span, until, marks } = latest();
            const end = until ?? endOf(at, marks);
            const begin = at[0] ?? end - span;
            // A history that is younger than the longest window is shown whole, not in a corner.
            return [span > 86_400 ? Math.min(begin, end - 3600) : end - span, end];
          },
        },
        y: { range: (_, __, most) => [0, most > 0 ? most * 1.08 : 1] },
      },
      axes: [
        {
          ...axis,
          size: 36,
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
          size: axisSize,
          space: 36,
          values: (_, ticks) => ticks.map((tick) => latest().format(tick)),
        },
      ],
      series: [
        {},
        ...lines.map((line): uPlot.Series => {
          const stroke = colour(element, line.colour);
          return {
            label: line.label,
            stroke,
            // A layer of nothing is to be seen as nothing: only areas, no lines.
            width: stacked ? 0 : 1.75,
            ...(line.dash ? { dash: line.dash } : {}),
            ...(stacked && line === lines[0] ? { fill: stroke } : {}),
            points: { show: false },
            // A step without a value is a gap, and a single value between gaps is still seen.
            spanGaps: false,
          };
        }),
        ...(before
          ? [{ stroke: colour(element, before.colour), width: 1.5, points: { show: false }, spanGaps: false }]
          : []),
      ],
      ...(stacked
        ? {
            bands: lines.slice(1).map((line, index) => ({
              series: [index + 2, index + 1] as [number, number],
              fill: colour(element, line.colour),
            })),
          }
        : {}),
      hooks: {
        setCursor: [moved],
        setSelect: [
          (plot) => {
            const { left, width } = plot.select;
            if (width <= 0) return;
            chosen(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
            plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          },
        ],
        draw: [(plot) => drawMarks(plot, latest().marks, (kind) => colour(element, kind))],
      },
    },
    drawnData(latest()),
    element,
  );
}

/** Moves the cursors of all charts to a place of one, in pixels; null takes them away. */
export function moveCursor(plot: uPlot, left: number | null): void {
  // The types know not of the third argument, by which the others hear of it.
  const wide = plot as unknown as { setCursor: (to: object, fire: boolean, publish: boolean) => void };
  wide.setCursor(left === null ? { left: -10, top: -10 } : { left, top: 1 }, true, true);
}

/** The last point, or a mark that is a little later: it is seen at once. */
function endOf(at: number[], marks: readonly ChartMark[]): number {
  const last = at.at(-1) ?? Date.now() / 1000;
  const mark = marks.at(-1)?.at ?? last;
  return mark > last && mark < last + FRESH ? mark : last;
}

/** The axis is as wide as its longest label, so that none is cut. */
function axisSize(plot: uPlot, values: string[] | null): number {
  if (values === null) return AXIS;
  plot.ctx.save();
  plot.ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  const longest = Math.max(0, ...values.map((value) => plot.ctx.measureText(value).width));
  plot.ctx.restore();
  return Math.max(AXIS, Math.ceil(longest / devicePixelRatio) + MARGIN);
}

/** A line for each mark, with a flag at its top: its kind is in its dashes, too. */
function drawMarks(plot: uPlot, marks: readonly ChartMark[], ink: (kind: string) => string): void {
  const { ctx, bbox } = plot;
  const unit = devicePixelRatio;
  const inks = { mark: ink("mark"), settings: ink("settings"), write: ink("write") };
  ctx.save();
  ctx.lineWidth = 1.5 * unit;
  let last = -Infinity;
  for (const { at, kind } of marks) {
    const left = Math.round(plot.valToPos(at, "x", true));
    if (left < bbox.left || left > bbox.left + bbox.width) continue;
    // Thousands of lines on one spot would be drawn for nothing.
    if (kind === "write" && left - last < unit) continue;
    last = left;
    ctx.strokeStyle = ctx.fillStyle = inks[kind];
    ctx.setLineDash(MARK_DASHES[kind].map((length) => length * unit));
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
    ctx.beginPath();
    ctx.moveTo(left - 4 * unit, bbox.top);
    ctx.lineTo(left + 4 * unit, bbox.top);
    ctx.lineTo(left, bbox.top + 6 * unit);
    ctx.fill();
  }
  ctx.restore();
}

/** Numbers, durations and times for people. */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const dated = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

export const NOTHING = "–";

export function count(value: number | null | undefined): string {
  return value == null ? NOTHING : whole.format(value);
}

/** A number in few characters. */
export function compact(value: number | null | undefined): string {
  if (value == null) return NOTHING;
  return value !== 0 && Math.abs(value) < 0.01 ? value.toExponential(0) : short.format(value);
}

export function percent(part: number): string {
  return part > 0 && part < 0.01 ? "< 1 %" : `${whole.format(Math.floor(part * 100))} %`;
}

/** Seconds in the unit that suits them. */
export function duration(seconds: number | null | undefined): string {
  if (seconds == null) return NOTHING;
  if (seconds < 0.001) return seconds <= 0 ? "0 s" : "< 1 ms";
  if (seconds < 0.9995) return `${Number((seconds * 1000).toPrecision(3))} ms`;
  if (seconds < 60) return `${seconds < 9.95 ? seconds.toFixed(1) : Math.round(seconds).toString()} s`;
  const total = Math.round(seconds);
  if (total < 3600) return `${Math.floor(total / 60)} min ${total % 60} s`;
  if (total < 48 * 3600) return `${Math.floor(total / 3600)} h ${Math.floor((total % 3600) / 60)} min`;
  return `${Math.floor(total / 86400)} d ${Math.floor((total % 86400) / 3600)} h`;
}

/** Seconds in one unit, where there is little room. */
export function brief(seconds: number): string {
  return duration(seconds).replace(/ \d+ (s|min|h)$/, "");
}

/** The time of day, in the reader's zone. */
export function time(iso: string): string {
  return clock.format(new Date(iso));
}

/** Date and time, in the reader's zone. */
export function instant(iso: string | null | undefined): string {
  return iso == null ? NOTHING : dated.format(new Date(iso));
}

export function plural(number: number, one: string, many = `${one}s`): string {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** The step that failed something, and in which batch of its query; "" where it is not known. */
export function stepBatch({ step, batch }: { step: string; batch: number | null }): string {
  return step !== "" && batch !== null ? `${step}, batch ${count(batch)}` : step;
}

/** A text with its first letter in capitals, as a sentence begins. */
export function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

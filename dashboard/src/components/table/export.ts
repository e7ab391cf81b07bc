/** Rows as a file: CSV for sheets, JSON for programs. */

export type Row = Record<string, unknown>;
export type Format = "csv" | "json";

/** Most rows of a file. */
export const MOST_ROWS = 10_000;
/** Most pages that are read for it. */
export const MOST_CALLS = 200;

// A sheet takes a cell that begins so for a formula; message ids and reasons are anybody's text.
const FORMULA = /^[=+\-@\t\r]/;
const NUMBER = /^-?\d+(\.\d+)?$/;
// It rounds a number of so many digits, and drops the zeros that an id begins with.
const ID = /^-?(\d{16,}|0\d+)$/;
/** Tells a sheet that the file is UTF-8. */
const MARK = "\ufeff";

function cell(value: unknown): string {
  if (value === null || value === undefined) return "";
  let text = typeof value === "string" ? value : JSON.stringify(value);
  if ((FORMULA.test(text) && !NUMBER.test(text)) || ID.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Rows as CSV (RFC 4180), the names of the columns first. */
export function toCsv(rows: readonly Row[]): string {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const lines = [columns, ...rows.map((row) => columns.map((column) => row[column]))];
  return lines.map((line) => `${line.map(cell).join(",")}\r\n`).join("");
}

/** Has the browser save rows as a file. */
export function save(name: string, format: Format, rows: readonly Row[]): void {
  const text = format === "csv" ? MARK + toCsv(rows) : `${JSON.stringify(rows, null, 2)}\n`;
  const type = format === "csv" ? "text/csv" : "application/json";
  const url = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  const link = document.createElement("a");
  link.href = url;
  link.download = `${name}.${format}`;
  link.click();
  // The browser has taken hold of it once the click is handled.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

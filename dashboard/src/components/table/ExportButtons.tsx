import { useState } from "react";
import { save, type Format, type Row } from "./export";

/** Saves what a view shows, all pages of it, as CSV or JSON. */
export function ExportButtons({
  name,
  rows,
}: {
  name: string;
  rows: () => Promise<{ rows: Row[]; all: boolean }>;
}) {
  const [said, setSaid] = useState("");
  const [busy, setBusy] = useState(false);
  const run = async (format: Format) => {
    setBusy(true);
    setSaid("Reading all pages…");
    try {
      const found = await rows();
      save(name, format, found.rows);
      setSaid(`${found.rows.length} rows saved${found.all ? "" : ": there are more, see the filter"}`);
    } catch (error) {
      setSaid(error instanceof Error ? error.message : String(error));
    }
    setBusy(false);
  };
  return (
    <div className="export" role="group" aria-label="Export">
      <button type="button" disabled={busy} onClick={() => void run("csv")}>
        CSV
      </button>
      <button type="button" disabled={busy} onClick={() => void run("json")}>
        JSON
      </button>
      <span className="faint" role="status">
        {said}
      </span>
    </div>
  );
}

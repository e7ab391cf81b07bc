import type { Column } from "@tanstack/react-table";
import { Field } from "../Fields";

/** The order of a table whose head is not shown: a column, and its direction. */
export function SortBy<T>({ columns }: { columns: Column<T>[] }) {
  const able = columns.filter((column) => column.getCanSort());
  const by = able.find((column) => column.getIsSorted() !== false);
  const falls = by?.getIsSorted() === "desc";
  return (
    <div className="sort-by">
      <Field label="Sort by">
        <select
          value={by?.id ?? ""}
          onChange={({ target }) => {
            const chosen = able.find((column) => column.id === target.value);
            if (chosen === undefined) by?.clearSorting();
            else chosen.toggleSorting(chosen.getFirstSortDir() === "desc");
          }}
        >
          <option value="">as listed</option>
          {able.map((column) => (
            <option key={column.id} value={column.id}>
              {typeof column.columnDef.header === "string" ? column.columnDef.header : column.id}
            </option>
          ))}
        </select>
      </Field>
      <button
        type="button"
        disabled={by === undefined}
        aria-label={falls ? "Falling; make it rise" : "Rising; make it fall"}
        onClick={() => by?.toggleSorting(!falls)}
      >
        {falls ? "▼" : "▲"}
      </button>
    </div>
  );
}

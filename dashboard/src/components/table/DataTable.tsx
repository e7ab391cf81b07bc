import {
  flexRender,
  getCoreRowModel,
  getSortedRowModel,
  useReactTable,
  type ColumnDef,
  type RowData,
  type RowSelectionState,
  type SortingState,
} from "@tanstack/react-table";
import { useState } from "react";
import { useNarrow } from "../../hooks/narrow";
import { SortBy } from "./SortBy";

declare module "@tanstack/react-table" {
  // eslint-disable-next-line @typescript-eslint/no-unused-vars -- the library dictates the names
  interface ColumnMeta<TData extends RowData, TValue> {
    /** Right-aligned, in figures of one width. */
    number?: boolean;
    /** The column's share of the width: a class of the style sheet. */
    width?: string;
  }
}

export interface Selection {
  selected: RowSelectionState;
  setSelected: (selected: RowSelectionState) => void;
}

/**
 * A table with a caption. It sorts where all rows are on the page, and selects where it is given a selection. On a
 * narrow screen each row is a card.
 */
export function DataTable<T>({
  caption,
  rows,
  columns,
  id,
  sortable = false,
  dense = false,
  selection,
}: {
  caption: string;
  rows: T[];
  columns: ColumnDef<T>[];
  id: (row: T) => string;
  sortable?: boolean;
  /** A card has its numbers beside each other: for rows of many columns. */
  dense?: boolean;
  selection?: Selection | undefined;
}) {
  const [sorting, setSorting] = useState<SortingState>([]);
  const narrow = useNarrow();
  // eslint-disable-next-line react-hooks/incompatible-library -- the compiler leaves this component alone
  const table = useReactTable({
    data: rows,
    columns,
    getRowId: id,
    getCoreRowModel: getCoreRowModel(),
    getSortedRowModel: getSortedRowModel(),
    enableSorting: sortable,
    enableRowSelection: selection !== undefined,
    state: { sorting, rowSelection: selection?.selected ?? {} },
    onSortingChange: setSorting,
    onRowSelectionChange: (update) =>
      selection?.setSelected(typeof update === "function" ? update(selection.selected) : update),
  });
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable by keyboard
    <div className={dense ? "table dense" : "table"} role="region" aria-label={caption} tabIndex={0}>
      {narrow && sortable && rows.length > 1 && <SortBy columns={table.getAllLeafColumns()} />}
      <table>
        <caption className="hidden">{caption}</caption>
        <thead>
          {table.getHeaderGroups().map((group) => (
            <tr key={group.id}>
              {selection && (
                <th scope="col" className="check">
                  <input
                    type="checkbox"
                    aria-label="Select all on this page"
                    checked={table.getIsAllRowsSelected()}
                    ref={(box) => {
                      if (box) box.indeterminate = table.getIsSomeRowsSelected();
                    }}
                    onChange={table.getToggleAllRowsSelectedHandler()}
                  />
                </th>
              )}
              {group.headers.map((header) => {
                const { column } = header;
                const sorted = column.getIsSorted();
                const title = flexRender(column.columnDef.header, header.getContext());
                return (
                  <th
                    key={header.id}
                    scope="col"
                    className={[
                      column.columnDef.meta?.number ? "number" : "",
                      column.columnDef.meta?.width ?? "",
                    ].join(" ")}
                    aria-sort={sorted === "asc" ? "ascending" : sorted === "desc" ? "descending" : undefined}
                  >
                    {column.getCanSort() ? (
                      <button type="button" className="sort" onClick={column.getToggleSortingHandler()}>
                        {title}
                        <span aria-hidden="true">
                          {sorted === "asc" ? " ▲" : sorted === "desc" ? " ▼" : ""}
                        </span>
                      </button>
                    ) : (
                      title
                    )}
                  </th>
                );
              })}
            </tr>
          ))}
        </thead>
        <tbody>
          {table.getRowModel().rows.map((row) => (
            <tr key={row.id} aria-selected={selection ? row.getIsSelected() : undefined}>
              {selection && (
                <td className="check">
                  <input
                    type="checkbox"
                    aria-label={`Select ${row.id}`}
                    checked={row.getIsSelected()}
                    onChange={row.getToggleSelectedHandler()}
                  />
                </td>
              )}
              {row.getVisibleCells().map((cell) => (
                <td
                  key={cell.id}
                  className={cell.column.columnDef.meta?.number ? "number" : ""}
                  data-title={
                    typeof cell.column.columnDef.header === "string"
                      ? cell.column.columnDef.header
                      : undefined
                  }
                >
                  {flexRender(cell.column.columnDef.cell, cell.getContext())}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

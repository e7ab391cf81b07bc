/** What was: series of counts, and the writes of people and programs. */

import { queryOptions } from "@tanstack/react-query";
import { collect, type ReadPage } from "../lib/pages";
import { client, data, type Schemas } from "./client";
import { paged, query } from "./queries";

/** Ranges up to the present that the service knows by name. */
const WINDOWS = ["10m", "3h", "1d", "all"] as const;

/** Seconds that the history is kept, and between two of its oldest readings. */
const KEPT = 30 * 86_400;
const LONGEST_STEP = 1800;

/** A range of the history: `span` seconds up to `until` (Unix seconds), or up to the present. */
export interface StatsRange {
  name: string;
  span: number;
  until: number | null;
}

/** Series over a range, or over as much time `shift` seconds before it. */
export const statsQuery = (topology: string, range: StatsRange, step?: number, shift = 0) =>
  queryOptions({
    queryKey: ["stats", topology, range.name, range.until ?? "", step ?? "", shift],
    queryFn: ({ signal }) => {
      const { name, span, until } = range;
      const window = WINDOWS.find((one) => one === name && until === null && shift === 0);
      const end = until ?? (shift > 0 ? Date.now() / 1000 : null);
      // The last point of what is long ago ends some minutes later.
      const more = shift > 0 ? LONGEST_STEP : 0;
      const ending = end === null ? {} : { until: new Date((end - shift + more) * 1000).toISOString() };
      const asked = window ? { window } : { span: Math.min(KEPT, span + more), ...ending };
      return data(
        client.GET("/api/v1/topologies/{topology}/stats", {
          params: { path: { topology }, query: { ...asked, ...(step === undefined ? {} : { step }) } },
          signal,
        }),
      );
    },
  });

/** Reads pages of the activity. */
export const readActivity =
  (topology: string, filter: Record<string, string>): ReadPage<Schemas["Activity"]> =>
  async (cursor, limit) => {
    const page = await data(
      client.GET("/api/v1/topologies/{topology}/activity", {
        params: { path: { topology }, query: query(filter, cursor, limit) },
      }),
    );
    return { rows: page.activity, cursor: page.cursor };
  };

export const activityQuery = (
  topology: string,
  filter: Record<string, string>,
  cursor: string,
  limit: number,
) => paged(["activity", topology, filter, cursor, limit], readActivity(topology, filter), cursor, limit);

/** Pages that have all entries that are kept. */
const MOST_PAGES = 6;
const MOST_ENTRIES = 1000;

/** The writes since the beginning of a range: the latest first. */
export const activityOfQuery = (topology: string, { name, span, until }: StatsRange) =>
  queryOptions({
    queryKey: ["activity", topology, "range", name, until ?? ""],
    queryFn: async () => {
      const since = (until === null ? Date.now() : until * 1000) - span * 1000;
      const read = readActivity(topology, {});
      const all = await collect<Schemas["Activity"]>(
        async (cursor, limit) => {
          const page = await read(cursor, limit);
          const last = page.rows.at(-1);
          return last !== undefined && Date.parse(last.at) < since ? { ...page, cursor: null } : page;
        },
        MOST_ENTRIES,
        undefined,
        MOST_PAGES,
      );
      return all.rows;
    },
  });

/** What was: series of counts, and the writes of people and programs. */

import { queryOptions } from "@tanstack/react-query";
import { collect, type ReadPage } from "../lib/pages";
import { client, data, type Schemas } from "./client";
import { paged, query } from "./queries";

export const statsQuery = (topology: string, window: "10m" | "3h" | "1d" | "all", step?: number) =>
  queryOptions({
    queryKey: ["stats", topology, window, step ?? null],
    queryFn: ({ signal }) =>
      data(
        client.GET("/api/v1/topologies/{topology}/stats", {
          params: { path: { topology }, query: { window, ...(step === undefined ? {} : { step }) } },
          signal,
        }),
      ),
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

/** The writes since a moment, in ms: the latest first. */
export const activitySinceQuery = (topology: string, span: number) =>
  queryOptions({
    queryKey: ["activity", topology, "span", span],
    queryFn: async () => {
      const since = Date.now() - span * 1000;
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

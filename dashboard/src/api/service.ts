/** The service itself: which store it has, and where a record is among all of its topologies. */

import { queryOptions } from "@tanstack/react-query";
import { messageIdQuery } from "../lib/records";
import { client, data, type Schemas } from "./client";
import { orNull } from "./queries";

export const serviceQuery = () =>
  queryOptions({
    queryKey: ["service"],
    queryFn: ({ signal }) => data(client.GET("/api/v1/service", { signal })),
    staleTime: 60_000,
  });

/** Most pages of topologies that are searched, 100 of them each. */
const MOST_PAGES = 20;

/** The names of all topologies, readable or not. */
export async function topologyNames(signal: AbortSignal): Promise<string[]> {
  const names: string[] = [];
  let cursor: string | null = null;
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const query: { limit: number; cursor?: string } = { limit: 100, ...(cursor === null ? {} : { cursor }) };
    const answer: Schemas["Topologies"] = await data(
      client.GET("/api/v1/topologies", { params: { query }, signal }),
    );
    names.push(...answer.topologies.map((one) => one.topology));
    names.push(...answer.unreadable.map((one) => one.topology));
    cursor = answer.cursor;
    if (cursor === null) break;
  }
  return names;
}

/** What a topology knows of a record. */
export interface Hit {
  topology: string;
  /** The tree of an anchor. */
  tree: Schemas["TreeState"] | null;
  /** Attempts and dead letters of a message id. */
  attempts: number;
  letters: number;
  /** Whether there is more to search. */
  more: boolean;
}

/** Looks for a record in one topology: by an anchor, and by a message id, of which the first piece is searched. */
export async function lookFor(
  topology: string,
  id: string,
  anchor: string | null,
  signal: AbortSignal,
): Promise<Hit> {
  const tree =
    anchor === null
      ? null
      : await data(
          client.GET("/api/v1/topologies/{topology}/trees/{anchor}", {
            params: { path: { topology, anchor } },
            signal,
          }),
        ).catch(orNull("unknown-tree"));
  const found = await data(
    client.GET("/api/v1/topologies/{topology}/records", {
      params: { path: { topology }, query: messageIdQuery(id) },
      signal,
    }),
  );
  return {
    topology,
    tree,
    attempts: found.records.reduce((sum, record) => sum + record.attempts.length, 0),
    letters: found.records.reduce((sum, record) => sum + record.dead_letters.length, 0),
    more: found.cursor !== null,
  };
}

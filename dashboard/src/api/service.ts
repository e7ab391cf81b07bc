/** The service itself: which store it has, and where a record is among all of its topologies. */

import { queryOptions } from "@tanstack/react-query";
import { messageIdQuery } from "../lib/records";
import { client, data, type Schemas } from "./client";

export const serviceQuery = () =>
  queryOptions({
    queryKey: ["service"],
    queryFn: ({ signal }) => data(client.GET("/api/v1/service", { signal })),
    staleTime: 60_000,
  });

export type Everywhere = Schemas["EverywhereFound"];
export type Hit = Schemas["EverywhereHit"];

/** A page of the search for a record among all topologies, by a message id, and by an anchor if it may be one. */
export const lookEverywhere = (
  id: string,
  anchor: string | null,
  cursor: string | null,
  signal: AbortSignal,
): Promise<Everywhere> =>
  data(
    client.GET("/api/v1/records", {
      params: {
        query: {
          ...messageIdQuery(id),
          ...(anchor === null ? {} : { anchor }),
          ...(cursor === null ? {} : { cursor }),
        },
      },
      signal,
    }),
  );

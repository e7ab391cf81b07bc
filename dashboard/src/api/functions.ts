/** Queries of functions and their calls. */

import { queryOptions } from "@tanstack/react-query";
import { client, data } from "./client";
import { orNull } from "./queries";

export const functionsQuery = () =>
  queryOptions({
    queryKey: ["functions"],
    queryFn: ({ signal }) => data(client.GET("/api/v1/drpc", { signal })),
  });

const readFunction = (name: string, signal: AbortSignal) =>
  data(client.GET("/api/v1/drpc/{function}", { params: { path: { function: name } }, signal }));

/** A function; an unknown one is a problem. */
export const functionQuery = (name: string) =>
  queryOptions({
    queryKey: ["function", name],
    queryFn: ({ signal }) => readFunction(name, signal),
  });

/** A function; null where there is none of the name. */
export const knownFunctionQuery = (name: string) =>
  queryOptions({
    queryKey: ["function", name, "known"],
    queryFn: ({ signal }) => readFunction(name, signal).catch(orNull("unknown-function")),
    staleTime: 60_000,
  });

export const callsQuery = (name: string, state: "pending" | "ended", limit: number) =>
  queryOptions({
    queryKey: ["calls", name, state],
    queryFn: ({ signal }) =>
      data(
        client.GET("/api/v1/drpc/{function}/calls/{state}", {
          params: { path: { function: name, state }, query: { limit } },
          signal,
        }),
      ),
  });

const readCall = (name: string, request: string, signal: AbortSignal) =>
  data(
    client.GET("/api/v1/drpc/{function}/{request_id}/steps", {
      params: { path: { function: name, request_id: request } },
      signal,
    }),
  );

export const callQuery = (name: string, request: string) =>
  queryOptions({
    queryKey: ["call", name, request],
    queryFn: ({ signal }) => readCall(name, request, signal),
  });

/** A call by its id, and the name of its function: looked for in all functions of a topology; null without any. */
export const callInQuery = (topology: string, request: string) =>
  queryOptions({
    queryKey: ["records", topology, "call", request],
    queryFn: async ({ signal }) => {
      const { functions } = await data(client.GET("/api/v1/drpc", { signal }));
      for (const one of functions.filter((each) => each.topology === topology)) {
        const call = await readCall(one.function, request, signal).catch(orNull("unknown-request"));
        if (call !== null) return [one.function, call] as const;
      }
      return null;
    },
    refetchOnWindowFocus: false,
  });

export const resultQuery = (name: string, request: string) =>
  queryOptions({
    queryKey: ["result", name, request],
    queryFn: ({ signal }) =>
      data(
        client.GET("/api/v1/drpc/{function}/{request_id}", {
          params: { path: { function: name, request_id: request } },
          signal,
        }),
      ),
    staleTime: Infinity,
  });

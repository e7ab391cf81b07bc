import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { client, data } from "../api/client";
import { seen, type Graph, type Seen } from "../views/graph/model";
import { place, shape } from "../views/graph/layout";
import type { Refresh } from "./refresh";

/** The graph of a topology, as often as the view is renewed, with what was counted before. */
export function useGraph(topology: string, refresh: Refresh) {
  const queries = useQueryClient();
  const queryKey = ["graph", topology];
  return useQuery({
    queryKey,
    queryFn: async ({ signal }) => {
      const call = client.GET("/api/v1/topologies/{topology}/graph", {
        params: { path: { topology } },
        signal,
      });
      return seen(await data(call), queries.getQueryData<Seen>(queryKey));
    },
    refetchInterval: refresh.interval,
  });
}

/** Where a graph is drawn. Its library is loaded with the first one; what was there stays until all is placed. */
export function useLayout(graph: Graph) {
  return useQuery({
    queryKey: ["layout", shape(graph)],
    queryFn: () => place(graph),
    staleTime: Infinity,
    placeholderData: keepPreviousData,
  });
}

/** Stuck rows, asked once for each time that somebody looks. */
export function useStuck(topology: string) {
  return useQuery({
    queryKey: ["stuck-here", topology],
    queryFn: ({ signal }) =>
      data(client.GET("/api/v1/topologies/{topology}/stuck", { params: { path: { topology } }, signal })),
    refetchInterval: false,
    refetchOnWindowFocus: false,
  });
}

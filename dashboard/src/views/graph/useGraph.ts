import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { graphQuery } from "../../api/queries";
import type { Refresh } from "../../hooks/refresh";
import { place, shape } from "./layout";
import { seen, type Graph } from "./model";

/** The graph of a topology, as often as the view is renewed, with what was counted before. */
export function useGraph(topology: string, refresh: Refresh) {
  return useQuery({ ...graphQuery(topology, seen), refetchInterval: refresh.interval });
}

/** The places of a graph's nodes. The library is loaded with the first graph; the previous places stay until all are new. */
export function useLayout(graph: Graph) {
  return useQuery({
    queryKey: ["layout", shape(graph)],
    queryFn: () => place(graph),
    staleTime: Infinity,
    placeholderData: keepPreviousData,
  });
}

import { useInfiniteQuery } from "@tanstack/react-query";
import { client, data } from "../api/client";

/** Where the tuples of a tree are. It reads what streams hold, so it is asked once, and again by hand. */
export function useWhere(topology: string, anchor: string, enabled = true) {
  return useInfiniteQuery({
    queryKey: ["why", topology, anchor],
    queryFn: ({ signal, pageParam }) =>
      data(
        client.GET("/api/v1/topologies/{topology}/trees/{anchor}/why", {
          params: {
            path: { topology, anchor },
            query: { rows: true, ...(pageParam && { cursor: pageParam }) },
          },
          signal,
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (last) => last.cursor,
    refetchInterval: false,
    refetchOnWindowFocus: false,
    enabled,
  });
}

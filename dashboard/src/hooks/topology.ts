import { useQuery } from "@tanstack/react-query";
import { client, data } from "../api/client";

/** The state of a topology, read once: its configuration and its spouts, for filters and questions. */
export function useTopology(topology: string) {
  return useQuery({
    queryKey: ["topology", topology],
    queryFn: ({ signal }) =>
      data(client.GET("/api/v1/topologies/{topology}", { params: { path: { topology } }, signal })),
    staleTime: 30_000,
  });
}

import { useQuery } from "@tanstack/react-query";
import { topologyQuery } from "../api/queries";

/** The state of a topology, read once: its configuration and its spouts, for filters and questions. */
export function useTopology(topology: string) {
  return useQuery({ ...topologyQuery(topology), staleTime: 30_000 });
}

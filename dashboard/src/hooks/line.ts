import { useQuery } from "@tanstack/react-query";
import { client, data, Problem } from "../api/client";
import { isOfLine } from "../views/lines/lines";

/** Whether an anchor is of a tree of a line: its bits say that it may be, and the topology whether there is one. */
export function useIsOfLine(topology: string, anchor: string | null): boolean {
  const found = useQuery({
    queryKey: ["is of line", topology, anchor],
    queryFn: async ({ signal }) => {
      try {
        const path = { topology, anchor: anchor ?? "" };
        await data(
          client.GET("/api/v1/topologies/{topology}/lines/requests/{anchor}", { params: { path }, signal }),
        );
        return true;
      } catch (error) {
        if (error instanceof Problem && error.kind === "unknown-line") return false;
        throw error;
      }
    },
    enabled: anchor !== null && isOfLine(anchor),
    staleTime: Infinity,
  });
  return found.data ?? false;
}

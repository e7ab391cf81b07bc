import { useQuery } from "@tanstack/react-query";
import { knownLineRequestQuery } from "../../api/queries";
import { isOfLine } from "./lines";

/** True if an anchor is of a tree of a line: its bits say that it may be, and the topology says that there is one. */
export function useIsOfLine(topology: string, anchor: string | null): boolean {
  const request = useQuery({
    ...knownLineRequestQuery(topology, anchor ?? ""),
    enabled: anchor !== null && isOfLine(anchor),
  });
  return request.data != null;
}

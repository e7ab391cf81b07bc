import { useQuery } from "@tanstack/react-query";
import { client, data } from "../api/client";
import type { Refresh } from "./refresh";
import { oneOf, useUrl } from "./url";

/** Times that are counted: the last ten minutes, or all since a function was registered. */
export const TIMES = ["recent", "total"] as const;
export const TIME_NAMES = { recent: "10 minutes", total: "All" } as const;

const DEFAULTS = { time: "recent" };

/** Which calls are counted, as the URL says. */
export function useTime(): [(typeof TIMES)[number], (time: string) => void] {
  const [url, change] = useUrl(DEFAULTS);
  return [oneOf(url.time, TIMES), (time) => change({ time })];
}

/** A function, renewed with its view. */
export function useFunction(name: string, refresh: Refresh) {
  return useQuery({
    queryKey: ["function", name],
    queryFn: ({ signal }) =>
      data(client.GET("/api/v1/drpc/{function}", { params: { path: { function: name } }, signal })),
    refetchInterval: refresh.interval,
  });
}

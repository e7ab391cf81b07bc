import { oneOf, useUrl } from "../../hooks/url";

/** Times that are counted: the last ten minutes, or all since a function was registered. */
export const TIMES = ["recent", "total"] as const;
export const TIME_NAMES = { recent: "10 minutes", total: "All" } as const;

const DEFAULTS = { time: "recent" };

/** The calls that are counted, as the URL says. */
export function useTime(): [(typeof TIMES)[number], (time: string) => void] {
  const [url, change] = useUrl(DEFAULTS);
  return [oneOf(url.time, TIMES), (time) => change({ time })];
}

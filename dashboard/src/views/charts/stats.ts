/** A window of history that grows with the live samples. */

import { useQuery, useQueryClient, type UseQueryResult } from "@tanstack/react-query";
import { useCallback, useEffect, useRef } from "react";
import { statsQuery } from "../../api/history";
import type { ServerEvent } from "../../api/sse";
import { append, type Sample, type Stats } from "../../lib/series";
import { useEvents, type Connection } from "../../hooks/events";
import type { Refresh } from "../../hooks/refresh";

export const WINDOWS = ["10m", "3h", "1d", "all"] as const;
export type Window = (typeof WINDOWS)[number];

/** Seconds that a window spans. */
export const SPANS: Record<Window, number> = { "10m": 600, "3h": 10_800, "1d": 86_400, all: 30 * 86_400 };
/** Seconds between two points of it, which is how often it is worth reading. */
const STEPS: Record<Window, number> = { "10m": 1, "3h": 10, "1d": 60, all: 600 };

/** Most samples that wait while the view is paused or slow; beyond, the window is read anew. */
const MOST_WAITING = 600;

export function useStats(
  topology: string,
  window: Window,
  refresh: Refresh,
): { stats: UseQueryResult<Stats>; connection: Connection } {
  const queries = useQueryClient();
  const waiting = useRef<Sample[]>([]);
  const connection = useEvents(
    topology,
    useCallback((event: ServerEvent) => {
      if (event.event !== "sample") return;
      waiting.current.push(JSON.parse(event.data) as Sample);
      if (waiting.current.length > MOST_WAITING) waiting.current.shift();
    }, []),
  );
  const grows = window === "10m" && connection === "live";
  const slowest = Math.max(refresh.seconds, window === "10m" ? 2 : STEPS[window]) * 1000;
  const stats = useQuery({
    ...statsQuery(topology, window),
    refetchInterval: refresh.paused || grows ? false : slowest,
    staleTime: refresh.paused ? Infinity : 0,
  });
  const { queryKey } = statsQuery(topology, window);
  const keyText = queryKey.join(" ");
  useEffect(() => {
    waiting.current = [];
  }, [keyText]);
  useEffect(() => {
    if (refresh.paused || !grows) return;
    const take = () => {
      if (waiting.current.length === 0) return;
      const { queryKey } = statsQuery(topology, window);
      const before = queries.getQueryData(queryKey);
      if (before === undefined) return;
      const samples = waiting.current;
      waiting.current = [];
      const after = append(before, samples, SPANS[window]);
      if (after === null) void queries.invalidateQueries({ queryKey });
      else queries.setQueryData(queryKey, after);
    };
    take();
    const timer = setInterval(take, refresh.seconds * 1000);
    return () => clearInterval(timer);
  }, [queries, topology, window, grows, refresh.paused, refresh.seconds]);
  return { stats, connection };
}

/** A range of history, which grows with the live samples where it is the latest ten minutes. */

import { useQuery, useQueryClient, type UseQueryResult } from "@tanstack/react-query";
import { useCallback, useEffect, useRef } from "react";
import { statsQuery } from "../../api/history";
import type { ServerEvent } from "../../api/sse";
import { append, type Sample, type Stats } from "../../lib/series";
import { useEvents, type Connection } from "../../hooks/events";
import type { Refresh } from "../../hooks/refresh";
import type { Range } from "./range";

/** The range to which live samples are added: each of its points counts a second. */
const LIVE = "10m";
/** Points for which a range is read again once, and most seconds between two readings. */
const POINTS = 1000;
const SLOWEST = 600;
/** Seconds between two readings of a range that is compared with. */
const BEFORE_SECONDS = 60;

/** Most samples that wait while the view is held or slow; beyond, the range is read anew. */
const MOST_WAITING = 600;

export function useStats(
  topology: string,
  range: Range,
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
  const { name, span, until } = range;
  const live = name === LIVE && until === null;
  const grows = live && connection === "live";
  const each = live ? 2 : Math.min(SLOWEST, span / POINTS);
  const still = refresh.paused || grows || until !== null;
  const stats = useQuery({
    ...statsQuery(topology, range),
    refetchInterval: still ? false : Math.max(refresh.seconds, each) * 1000,
    staleTime: refresh.paused || until !== null ? Infinity : 0,
  });
  const { queryKey } = statsQuery(topology, range);
  const keyText = queryKey.join(" ");
  useEffect(() => {
    waiting.current = [];
  }, [keyText]);
  useEffect(() => {
    if (refresh.paused || !grows) return;
    const take = () => {
      if (waiting.current.length === 0) return;
      const { queryKey } = statsQuery(topology, { name, span, until });
      const before = queries.getQueryData(queryKey);
      if (before === undefined) return;
      const samples = waiting.current;
      waiting.current = [];
      const after = append(before, samples, span);
      if (after === null) void queries.invalidateQueries({ queryKey });
      else queries.setQueryData(queryKey, after);
    };
    take();
    const timer = setInterval(take, refresh.seconds * 1000);
    return () => clearInterval(timer);
  }, [queries, topology, name, span, until, grows, refresh.paused, refresh.seconds]);
  return { stats, connection };
}

/** The same hours some seconds before a range; undefined where nothing is compared, or it is not read yet. */
export function useBefore(topology: string, range: Range, shift: number, paused: boolean): Stats | undefined {
  const found = useQuery({
    ...statsQuery(topology, range, undefined, shift),
    enabled: shift > 0,
    refetchInterval: paused || range.until !== null ? false : BEFORE_SECONDS * 1000,
  });
  return shift > 0 ? found.data : undefined;
}

/** What was done last, beside the button that would do it again. */

import { useQuery } from "@tanstack/react-query";
import { activityQuery } from "../../api/history";
import { Reason } from "../../components/Text";
import { useNow } from "../../hooks/now";
import { inWords, latest, type Activity } from "./activity";

/** Seconds after which it is looked at again. */
const SECONDS = 15;
/** The latest writes that are looked at. */
const LATEST = 100;

/** The latest writes to a topology, for all that is said of them on a page. */
export function useLatestWrites(topology: string): readonly Activity[] {
  const found = useQuery({
    ...activityQuery(topology, {}, "", LATEST),
    staleTime: SECONDS * 1000,
    refetchInterval: SECONDS * 1000,
  });
  return found.data?.rows ?? [];
}

export function LastWrite({
  writes,
  actions,
  fits,
  what = "",
}: {
  writes: readonly Activity[];
  actions: readonly string[];
  fits?: (one: Activity) => boolean;
  what?: string;
}) {
  const now = useNow();
  const last = latest(writes, actions, fits);
  if (last === undefined) return null;
  return (
    <span className="faint last-write">
      <Reason text={inWords(last, now, what)} whole />
    </span>
  );
}

/** The state of a view lives in its URL, so that it can be bookmarked and the back button works. */

import { useCallback, useMemo } from "react";
import { useSearchParams } from "react-router";

type State = Record<string, string>;

/**
 * Search parameters over their defaults, which stay out of the URL. A change is a step that the back button undoes
 * unless it replaces the present one.
 */
export function useUrl<T extends State>(defaults: T): [T, (patch: Partial<T>, replace?: boolean) => void] {
  const [search, setSearch] = useSearchParams();
  const state = useMemo(
    () =>
      Object.fromEntries(
        Object.entries(defaults).map(([name, fallback]) => [name, search.get(name) ?? fallback]),
      ) as T,
    [search, defaults],
  );
  const change = useCallback(
    (patch: Partial<T>, replace = false) => {
      // The URL itself: what was rendered last may be older, and would undo the change before this one.
      const after = new URLSearchParams(window.location.search);
      for (const [name, value] of Object.entries(patch) as [string, string][]) {
        if (value === defaults[name]) after.delete(name);
        else after.set(name, value);
      }
      setSearch(after, { replace });
    },
    [setSearch, defaults],
  );
  return [state, change];
}

/** One of the values allowed, the first where the URL says something else. */
export function oneOf<T extends string>(value: string, allowed: readonly [T, ...T[]]): T {
  return allowed.find((one) => one === value) ?? allowed[0];
}

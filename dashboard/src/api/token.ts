/** The token that was entered, kept for this tab only, and whether the service took it. */

import { useSyncExternalStore } from "react";

const KEY = "acker-token";

/** `open`: nothing is asked for. `missing`: the service wants one. `refused`: it does not know the one given. */
export type Access = "open" | "missing" | "refused";

let access: Access = "open";
const listeners = new Set<() => void>();

function tell(next: Access): void {
  access = next;
  listeners.forEach((listener) => listener());
}

export function getToken(): string | null {
  return sessionStorage.getItem(KEY);
}

/** Keeps a token for this tab; null forgets it. */
export function setToken(token: string | null): void {
  if (token === null) sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, token);
  tell("open");
}

/** To be called when the service answers 401 to a request with this token. */
export function tokenRefused(sent: string | null): void {
  // A request that was under way with an older token says nothing of the present one.
  if (sent === getToken()) tell(sent === null ? "missing" : "refused");
}

export function useAccess(): Access {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => access,
  );
}

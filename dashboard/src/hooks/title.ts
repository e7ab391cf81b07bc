/** The title and the icon of the tab: how the topologies are, while somebody looks elsewhere. */

import { useEffect } from "react";
import { PATH } from "../api/client";
import type { Schemas } from "../api/client";
import { inWords, worst, type Level } from "../lib/triage";

const ICONS: Partial<Record<Level, string>> = {
  critical: "icon-critical.svg",
  look: "icon-look.svg",
};

/** The words of a tab while the store or the service does not answer. */
export const UNKNOWN = "unknown now";

/** Shows the counts in the tab, until the view is left. known: whether they are so now. */
export function useTab(counts: Schemas["Levels"] | null | undefined, known: boolean) {
  useTitle(known ? (counts ? inWords(counts) : "") : UNKNOWN, known ? counts && worst(counts) : "look");
}

/** Shows words in the tab, and the icon of a severity, until the view is left. */
export function useTitle(words: string, severity: Level | null | undefined) {
  const icon = (severity && ICONS[severity]) ?? "icon.svg";
  useEffect(() => {
    const link = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
    document.title = words === "" ? "acker" : `${words} · acker`;
    if (link) link.href = `${PATH}/${icon}`;
    return () => {
      if (link) link.href = `${PATH}/icon.svg`;
    };
  }, [words, icon]);
}

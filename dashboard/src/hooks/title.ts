/** The title and the icon of the tab: how the topologies are, while somebody looks elsewhere. */

import { useEffect } from "react";
import { PATH } from "../api/client";
import type { Schemas } from "../api/client";
import { inWords, worst, type Level } from "../lib/triage";

const ICONS: Partial<Record<Level, string>> = {
  critical: "icon-critical.svg",
  look: "icon-look.svg",
};

/** Shows the counts in the tab, until the view is left. */
export function useTab(counts: Schemas["Levels"] | null | undefined) {
  useTitle(counts ? inWords(counts) : "", counts ? worst(counts) : null);
}

/** Shows words in the tab, and the icon of a severity, until the view is left. */
export function useTitle(words: string, severity: Level | null) {
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

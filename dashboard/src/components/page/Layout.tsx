import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { Link, NavLink, Outlet, useLocation, useParams } from "react-router";
import { PATH } from "../../api/client";
import { topologyQuery } from "../../api/queries";
import { getToken, setToken, useAccess } from "../../api/token";
import { setTheme, THEMES, useTheme, type Theme } from "../../hooks/theme";
import { useRefresh } from "../../hooks/refresh";
import { UNKNOWN, useTitle } from "../../hooks/title";
import { useTopology } from "../../hooks/topology";
import { compact } from "../../lib/format";
import { LEVELS } from "../../lib/triage";
import { About, Environment } from "./About";
import { FindBox } from "./FindBox";
import { Shortcuts } from "./Shortcuts";
import { TokenForm } from "./TokenForm";

/** Seconds after which the tab is renewed where no view is sooner. */
const TAB_SECONDS = 10;
const VIEWS = [
  ["", "Charts"],
  ["trees", "Trees in flight"],
  ["stuck", "In streams"],
  ["lines", "Lines"],
  ["outcomes", "Failures"],
  ["dead-letters", "Dead letters"],
  ["activity", "Activity"],
] as const;

/** What surrounds every view. */
export function Layout() {
  const { topology, function: name } = useParams();
  const access = useAccess();
  const theme = useTheme();
  const queries = useQueryClient();
  const { pathname } = useLocation();
  const main = useRef<HTMLElement>(null);
  const views = useRef<HTMLElement>(null);
  const before = useRef(pathname);
  useEffect(() => {
    // A new view begins where its content does, for the keyboard and for screen readers.
    if (before.current !== pathname) main.current?.focus({ preventScroll: true });
    before.current = pathname;
    // The overview and topologies have titles of their own, which say how these are.
    if (topology === undefined && pathname !== "/") document.title = name ? `${name} · acker` : "acker";
  }, [pathname, topology, name]);
  useEffect(() => {
    // On a phone the tabs are wider than the window: the one that is lit is to be seen, however it is turned.
    const tabs = views.current;
    if (tabs === null) return;
    const show = () => {
      const lit = tabs.querySelector<HTMLElement>("[aria-current=page]");
      if (lit) tabs.scrollLeft = lit.offsetLeft - (tabs.clientWidth - lit.offsetWidth) / 2;
    };
    const turned = new ResizeObserver(show);
    turned.observe(tabs);
    return () => turned.disconnect();
  }, [pathname]);
  return (
    <>
      <a className="skip" href="#main">
        To the content
      </a>
      {access === "open" && topology !== undefined && <TopologyTab topology={topology} />}
      <header>
        <div className="bar">
          <Link to="/" className="brand">
            <img src={`${PATH}/icon.svg`} alt="" width="22" height="22" /> acker
          </Link>
          {access === "open" && <Environment />}
          {topology !== undefined && (
            <span className="where">
              <span aria-hidden="true">/</span> <Link to={`/t/${topology}`}>{topology}</Link>
            </span>
          )}
          {topology === undefined && (
            <span className="where">
              <NavLink to="/functions" end>
                Functions
              </NavLink>
              {name !== undefined && (
                <>
                  {" "}
                  <span aria-hidden="true">/</span> <Link to={`/functions/${name}`}>{name}</Link>
                </>
              )}
            </span>
          )}
          <span className="spring" />
          {access === "open" && <FindBox topology={topology} />}
          {access === "open" && getToken() !== null && (
            <button
              type="button"
              onClick={() => {
                setToken(null);
                void queries.resetQueries();
              }}
            >
              Forget token
            </button>
          )}
          {access === "open" && <Shortcuts topology={topology} />}
          <label className="theme">
            <span className="hidden">Theme</span>
            <select value={theme} onChange={(event) => setTheme(event.target.value as Theme)}>
              {THEMES.map((one) => (
                <option key={one} value={one}>
                  {one === "system" ? "System" : one === "light" ? "Light" : "Dark"}
                </option>
              ))}
            </select>
          </label>
        </div>
        {access === "open" && <About />}
        {topology !== undefined && (
          <nav aria-label="Views of the topology" ref={views}>
            {VIEWS.map(([path, label]) => (
              <NavLink key={path} to={`/t/${topology}${path && `/${path}`}`} end={path === ""}>
                {label}
                {path === "dead-letters" && access === "open" && <LetterCount topology={topology} />}
              </NavLink>
            ))}
          </nav>
        )}
      </header>
      <main id="main" ref={main} tabIndex={-1}>
        {access === "open" ? <Outlet /> : <TokenForm key={access} access={access} />}
      </main>
    </>
  );
}

/** The browser's tab: the topology, and what somebody has to know who looks elsewhere. */
function TopologyTab({ topology }: { topology: string }) {
  const refresh = useRefresh();
  const { data, error } = useQuery({
    ...topologyQuery(topology),
    refetchInterval: refresh.paused ? false : TAB_SECONDS * 1000,
    refetchIntervalInBackground: true,
  });
  const severity = error === null ? data?.health.severity : "look";
  const level = LEVELS.find(([one]) => one === severity && one !== "well")?.[1](1);
  const words = error === null ? level : UNKNOWN;
  useTitle(words === undefined ? topology : `${topology}: ${words}`, severity);
  return null;
}

/** How many there are, for the tab. */
function LetterCount({ topology }: { topology: string }) {
  const { data } = useTopology(topology);
  return data !== undefined && data.dead_letters > 0 ? (
    <span className="count"> {compact(data.dead_letters)}</span>
  ) : null;
}

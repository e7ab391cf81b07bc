import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { createBrowserRouter, RouterProvider } from "react-router";
import { PATH, Problem } from "./api/client";
import { Layout } from "./components/page/Layout";
import "./style.css";
import "./views/charts/charts.css";
import "./views/graph/graph.css";
import "./views/overview/overview.css";
import "./views/topology/topology.css";
import { ActivityView } from "./views/activity/ActivityView";
import { Broken } from "./views/Broken";
import { Call } from "./views/functions/Call";
import { DeadLetters } from "./views/dead-letters/DeadLetters";
import { Find } from "./views/find/Find";
import { FindAll } from "./views/find/FindAll";
import { FunctionView } from "./views/functions/Function";
import { Functions } from "./views/functions/Functions";
import { Letter } from "./views/dead-letters/DeadLetter";
import { LineRequest } from "./views/lines/LineRequest";
import { Lines } from "./views/lines/Lines";
import { NotFound } from "./views/NotFound";
import { Outcomes } from "./views/outcomes/Outcomes";
import { Overview } from "./views/overview/Overview";
import { Stuck } from "./views/stuck/Stuck";
import { Topology } from "./views/topology/Topology";
import { Tree } from "./views/trees/Tree";
import { Trees } from "./views/trees/Trees";

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      // The service is often on this machine: whether there is a network says nothing.
      networkMode: "always",
      // A bad request stays bad; one that fails otherwise is sent again after a moment.
      retry: (failures, error) => failures < 2 && !(error instanceof Problem),
      retryDelay: 500,
      // Views say themselves how often they are renewed; this is for a view that failed before it showed anything.
      refetchInterval: (query) =>
        query.state.data === undefined && query.state.error !== null ? 2000 : false,
    },
  },
});

const router = createBrowserRouter(
  [
    {
      Component: Layout,
      ErrorBoundary: Broken,
      children: [
        {
          ErrorBoundary: Broken,
          children: [
            { index: true, Component: Overview },
            { path: "t/:topology", Component: Topology },
            { path: "t/:topology/trees", Component: Trees },
            { path: "t/:topology/trees/:anchor", Component: Tree },
            { path: "t/:topology/stuck", Component: Stuck },
            { path: "t/:topology/lines", Component: Lines },
            { path: "t/:topology/lines/:anchor", Component: LineRequest },
            { path: "t/:topology/find", Component: Find },
            { path: "t/:topology/outcomes", Component: Outcomes },
            { path: "t/:topology/dead-letters", Component: DeadLetters },
            { path: "t/:topology/dead-letters/:id", Component: Letter },
            { path: "t/:topology/activity", Component: ActivityView },
            { path: "find", Component: FindAll },
            { path: "functions", Component: Functions },
            { path: "functions/:function", Component: FunctionView },
            { path: "functions/:function/:request", Component: Call },
            { path: "*", Component: NotFound },
          ],
        },
      ],
    },
  ],
  { basename: PATH || "/" },
);

const root = document.getElementById("root");
if (root === null) throw new Error("the page has no #root");
createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  </StrictMode>,
);

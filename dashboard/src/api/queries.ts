/** What the pages ask of the service but for functions (functions.ts): each query with its key, so that a change renews every page that shows it. */

import {
  infiniteQueryOptions,
  keepPreviousData,
  queryOptions,
  type QueryClient,
} from "@tanstack/react-query";
import { collect, type Page, type ReadPage } from "../lib/pages";
import { client, data, Problem, type Schemas } from "./client";

/** What somebody asks for by hand: a look that reads much is not taken again by itself. */
const BY_HAND = { refetchInterval: false, refetchOnWindowFocus: false } as const;

/** Null where the service does not know what was asked for. */
export const orNull = (kind: string) => (error: unknown) => {
  if (error instanceof Problem && error.kind === kind) return null;
  throw error;
};

export const accessQuery = () =>
  queryOptions({
    queryKey: ["access"],
    queryFn: ({ signal }) => data(client.GET("/api/v1/access", { signal })),
    staleTime: 60_000,
  });

/** A page of topologies, the worst first. */
export const topologiesQuery = (
  cursor: string,
  name = "",
  state: readonly Schemas["Health"]["severity"][] = [],
) =>
  queryOptions({
    queryKey: ["topologies", cursor, name, ...state],
    queryFn: ({ signal }) =>
      data(
        client.GET("/api/v1/topologies", {
          params: {
            query: { sort: "triage", limit: 100, name, state: [...state], ...(cursor ? { cursor } : {}) },
          },
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
  });

export const topologyQuery = (topology: string) =>
  queryOptions({
    queryKey: ["topology", topology],
    queryFn: ({ signal }) =>
      data(client.GET("/api/v1/topologies/{topology}", { params: { path: { topology } }, signal })),
  });

/** The graph as `seen` makes it of the one that was read and of what was seen before. */
export const graphQuery = <Seen>(
  topology: string,
  seen: (graph: Schemas["Graph"], before: Seen | undefined) => Seen,
) =>
  queryOptions({
    queryKey: ["graph", topology],
    queryFn: async ({ signal, client: queries, queryKey }) => {
      const call = client.GET("/api/v1/topologies/{topology}/graph", {
        params: { path: { topology } },
        signal,
      });
      return seen(await data(call), queries.getQueryData<Seen>(queryKey));
    },
  });

export type TreeFilter = Record<string, string>;

/** Reads pages of trees in flight. An empty field of a filter asks for nothing. */
export const readTrees =
  (topology: string, filter: TreeFilter): ReadPage<Schemas["Tree"]> =>
  async (cursor, limit) => {
    const page = await data(
      client.GET("/api/v1/topologies/{topology}/trees", {
        params: { path: { topology }, query: query(filter, cursor, limit) },
      }),
    );
    return { rows: page.trees, cursor: page.cursor };
  };

export const treesQuery = (topology: string, filter: TreeFilter, cursor: string, limit: number) =>
  paged(["trees", topology, filter, cursor], readTrees(topology, filter), cursor, limit);

const readTree = (topology: string, anchor: string, signal: AbortSignal) =>
  data(
    client.GET("/api/v1/topologies/{topology}/trees/{anchor}", {
      params: { path: { topology, anchor } },
      signal,
    }),
  );

/** A tree, or how it ended; an unknown one is a problem. */
export const treeQuery = (topology: string, anchor: string) =>
  queryOptions({
    queryKey: ["tree", topology, anchor],
    queryFn: ({ signal }) => readTree(topology, anchor, signal),
  });

/** A tree, or its end; null if the ledger does not know it, or no longer. */
export const knownTreeQuery = (topology: string, anchor: string) =>
  queryOptions({
    queryKey: ["tree", topology, anchor, "known"],
    queryFn: ({ signal }) => readTree(topology, anchor, signal).catch(orNull("unknown-tree")),
    // An end stays as it is; a tree that was read while it had none is read again.
    staleTime: ({ state }) => (state.data?.outcome ? Infinity : 0),
  });

/** The places of a tree's tuples. It reads what streams hold, so it is asked once, and again by hand. */
export const whyQuery = (topology: string, anchor: string) =>
  infiniteQueryOptions({
    queryKey: ["why", topology, anchor],
    queryFn: ({ signal, pageParam }) =>
      data(
        client.GET("/api/v1/topologies/{topology}/trees/{anchor}/why", {
          params: {
            path: { topology, anchor },
            query: { rows: true, ...(pageParam && { cursor: pageParam }) },
          },
          signal,
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (last) => last.cursor,
    ...BY_HAND,
  });

/** Rows that subscriptions have not acked. It reads what streams hold, so it is asked once, and again by hand. */
export const stuckQuery = (topology: string) =>
  infiniteQueryOptions({
    queryKey: ["stuck", topology],
    queryFn: ({ signal, pageParam }) =>
      data(
        client.GET("/api/v1/topologies/{topology}/stuck", {
          params: { path: { topology }, query: pageParam ? { cursor: pageParam } : {} },
          signal,
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (last) => last.cursor,
    ...BY_HAND,
  });

/** Attempts of a search after which it waits until somebody asks for more. */
const ENOUGH_ATTEMPTS = 100;

/** A search for a record: pages of at most `most` pieces, each of which the service bounds. */
export const recordsQuery = (
  topology: string,
  of: { message_id: string } | { message_id_base64: string },
  most: number,
) =>
  infiniteQueryOptions({
    queryKey: ["records", topology, of, most],
    queryFn: async ({ pageParam, signal }) => {
      const answers: Schemas["Records"][] = [];
      let cursor: string | null = pageParam;
      let attempts = 0;
      do {
        const answer: Schemas["Records"] = await data(
          client.GET("/api/v1/topologies/{topology}/records", {
            params: { path: { topology }, query: { ...of, ...(cursor === "" ? {} : { cursor }) } },
            signal,
          }),
        );
        answers.push(answer);
        cursor = answer.cursor;
        attempts += answer.records.reduce((sum, record) => sum + record.attempts.length, 0);
      } while (cursor !== null && attempts < ENOUGH_ATTEMPTS && answers.length < most);
      return answers;
    },
    initialPageParam: "",
    getNextPageParam: (last) => last.at(-1)?.cursor ?? undefined,
    refetchOnWindowFocus: false,
  });

/** Reads pages of failures and expirations. */
export const readOutcomes =
  (topology: string, filter: Record<string, string>): ReadPage<Schemas["Outcome"]> =>
  async (cursor, limit) => {
    const page = await data(
      client.GET("/api/v1/topologies/{topology}/outcomes", {
        params: { path: { topology }, query: query(filter, cursor, limit) },
      }),
    );
    return { rows: page.outcomes, cursor: page.cursor };
  };

export const outcomesQuery = (
  topology: string,
  filter: Record<string, string>,
  cursor: string,
  limit: number,
) => paged(["outcomes", topology, filter, cursor], readOutcomes(topology, filter), cursor, limit);

/** The latest failures and expirations by cause, step and kind. */
export const outcomeGroupsQuery = (topology: string, filter: Record<string, string>) =>
  queryOptions({
    queryKey: ["outcomes", topology, "groups", filter],
    queryFn: () =>
      data(
        client.GET("/api/v1/topologies/{topology}/outcomes/groups", {
          params: { path: { topology }, query: conditions(filter) },
        }),
      ),
    placeholderData: keepPreviousData,
  });

/** Reads pages of dead letters. */
export const readDeadLetters =
  (topology: string, asked: Partial<Schemas["Matching"]>): ReadPage<Schemas["DeadLetter"]> =>
  async (cursor, limit) => {
    const page = await data(
      client.GET("/api/v1/topologies/{topology}/dead-letters", {
        params: {
          path: { topology },
          query: { ...asked, limit, ...(cursor === undefined ? {} : { cursor }) },
        },
      }),
    );
    return { rows: page.dead_letters, cursor: page.cursor };
  };

export const deadLettersQuery = (
  topology: string,
  asked: Partial<Schemas["Matching"]>,
  cursor: string,
  limit: number,
) => paged(["dead-letters", topology, asked, cursor], readDeadLetters(topology, asked), cursor, limit);

export const deadLetterQuery = (topology: string, id: string) =>
  queryOptions({
    queryKey: ["dead-letter", topology, id],
    queryFn: ({ signal }) =>
      data(
        client.GET("/api/v1/topologies/{topology}/dead-letters/{id}", {
          params: { path: { topology, id } },
          signal,
        }),
      ),
  });

/**
 * Groups of dead letters, as `read` adds them up page by page. The first time, partial counts
 * are shown; afterwards the previous groups stay until all letters are counted.
 */
export const deadLetterGroupsQuery = <Groups>(
  topology: string,
  asked: Partial<Schemas["Matching"]>,
  read: (readPage: ReadGroups, onPart: (part: Groups) => void) => Promise<Groups>,
) =>
  queryOptions({
    queryKey: ["dead-letter-groups", topology, asked],
    queryFn: ({ client: queries, queryKey }) => {
      const first = queries.getQueryData<Groups>(queryKey) === undefined;
      return read(
        (cursor) =>
          data(
            client.GET("/api/v1/topologies/{topology}/dead-letters/groups", {
              params: { path: { topology }, query: { ...asked, ...(cursor === null ? {} : { cursor }) } },
            }),
          ),
        (part) => {
          if (first) queries.setQueryData<Groups>(queryKey, () => part);
        },
      );
    },
    placeholderData: keepPreviousData,
  });

export type ReadGroups = (cursor: string | null) => Promise<Schemas["Groups"]>;

export const linesQuery = (topology: string) =>
  queryOptions({
    queryKey: ["lines", topology],
    queryFn: ({ signal }) =>
      data(client.GET("/api/v1/topologies/{topology}/lines", { params: { path: { topology } }, signal })),
  });

const readLineRequest = (topology: string, anchor: string, signal: AbortSignal) =>
  data(
    client.GET("/api/v1/topologies/{topology}/lines/requests/{anchor}", {
      params: { path: { topology, anchor } },
      signal,
    }),
  );

/** A request of a line by the anchor of any of its trees; an anchor of no line is a problem. */
export const lineRequestQuery = (topology: string, anchor: string) =>
  queryOptions({
    queryKey: ["line-request", topology, anchor],
    queryFn: ({ signal }) => readLineRequest(topology, anchor, signal),
  });

/** A request of a line; null where the anchor is of none. */
export const knownLineRequestQuery = (topology: string, anchor: string) =>
  queryOptions({
    queryKey: ["line-request", topology, anchor, "known"],
    queryFn: ({ signal }) => readLineRequest(topology, anchor, signal).catch(orNull("unknown-line")),
    staleTime: Infinity,
  });

const renew =
  (...names: string[]) =>
  (queries: QueryClient, of: string) =>
    Promise.all(names.map((name) => queries.invalidateQueries({ queryKey: [name, of] })));

/** After trees of a topology were failed or reset. */
export const renewTrees = renew("trees", "tree", "topology", "outcomes", "activity");
/** After a part of a topology was removed. */
export const renewTopology = renew("topology", "trees", "outcomes", "activity");
/** After a mark was set on the charts of a topology. */
export const renewMarks = renew("activity");
/** After dead letters of a topology were replayed or discarded. */
export const renewDeadLetters = renew(
  "dead-letters",
  "dead-letter-groups",
  "dead-letter",
  "topology",
  "activity",
);
/** After something of a topology failed or expired. */
export const renewOutcomes = renew("outcomes");
/** After somebody searches a topology again. */
export const renewRecords = renew("records", "tree");
/** After a call of a function was cancelled. */
export const renewCalls = renew("call", "calls", "function");

export function paged<Row>(queryKey: readonly unknown[], read: ReadPage<Row>, cursor: string, limit: number) {
  return queryOptions<Page<Row>>({
    queryKey,
    queryFn: () => collect(read, limit, cursor === "" ? undefined : cursor),
    placeholderData: keepPreviousData,
  });
}

export function query(filter: Record<string, string>, cursor: string | undefined, limit: number) {
  return { ...conditions(filter), limit, ...(cursor === undefined ? {} : { cursor }) };
}

/** What is asked for. A step and a cause may stand after a "=", for an empty one is one, too. */
function conditions(filter: Record<string, string>): Record<string, string> {
  const given = Object.entries(filter).filter(([, value]) => value !== "");
  return Object.fromEntries(
    given.map(([name, value]) => [name, /^(step|cause)$/.test(name) ? value.replace(/^=/, "") : value]),
  );
}

import { client, data, Problem, type Schemas } from "./client";

/** The tree of an anchor, and how it ended; null where it is not known (any more). */
export async function treeAt(
  topology: string,
  anchor: string,
  signal: AbortSignal,
): Promise<Schemas["TreeState"] | null> {
  try {
    return await data(
      client.GET("/api/v1/topologies/{topology}/trees/{anchor}", {
        params: { path: { topology, anchor } },
        signal,
      }),
    );
  } catch (error) {
    if (error instanceof Problem && error.kind === "unknown-tree") return null;
    throw error;
  }
}

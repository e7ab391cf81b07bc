/** Pages of the service: one may be empty and not the last. */

export interface Page<T> {
  rows: T[];
  cursor: string | null;
}

export type ReadPage<T> = (cursor: string | undefined, limit: number) => Promise<Page<T>>;

/** Most pages that are asked for to fill one of ours: the service reads a bounded piece for each. */
const MOST_CALLS = 20;
/** Most rows that every list of the service gives for a page. */
const MOST_LIMIT = 200;

/** Reads on until there are `limit` rows, or no more, or it was asked often enough. */
export async function collect<T>(
  read: ReadPage<T>,
  limit: number,
  cursor?: string,
  mostCalls = MOST_CALLS,
): Promise<Page<T>> {
  const rows: T[] = [];
  let next: string | undefined = cursor;
  for (let call = 0; call < mostCalls; call += 1) {
    const page = await read(next, Math.min(MOST_LIMIT, limit - rows.length));
    rows.push(...page.rows);
    if (page.cursor === null) return { rows, cursor: null };
    next = page.cursor;
    if (rows.length >= limit) break;
  }
  return { rows, cursor: next ?? null };
}

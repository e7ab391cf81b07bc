/** Work on many things in pieces that the service bounds: with its progress, until it is stopped. */

/** What one piece has done, and where the next one begins; null at the end. */
export interface Piece<Next> {
  done: number;
  next: Next | null;
}

/** Does piece after piece, each after the answer to the one before; returns how much was done in all. */
export async function inPieces<Next>(
  first: Next,
  once: (next: Next) => Promise<Piece<Next>>,
  progress: (done: number) => void,
  stopped: () => boolean,
): Promise<{ done: number; stopped: boolean }> {
  let done = 0;
  let next: Next | null = first;
  while (next !== null) {
    if (stopped()) return { done, stopped: true };
    const piece: Piece<Next> = await once(next);
    done += piece.done;
    next = piece.next;
    progress(done);
  }
  return { done, stopped: false };
}

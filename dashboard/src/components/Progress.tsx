import { count } from "../lib/format";

/** How far work in pieces has come; what is to be known of it before it begins. */
export function Progress({ done, of, before }: { done: number; of: number; before: string }) {
  return (
    <div className="progress">
      {done > 0 && <progress value={done} max={Math.max(of, done)} aria-label="Done so far" />}
      <p className="faint" role="status">
        {done > 0 ? `${count(done)} of ${count(of)} done so far.` : before}
      </p>
    </div>
  );
}

/** To the first and to the next page: cursors lead forward, and the back button back. */
export function Pager({
  first,
  next,
  go,
}: {
  first: boolean;
  next: string | null;
  go: (cursor: string) => void;
}) {
  return (
    <nav className="pager" aria-label="Pages">
      <button type="button" disabled={first} onClick={() => go("")}>
        First page
      </button>
      <button type="button" disabled={next === null} onClick={() => next !== null && go(next)}>
        Next page
      </button>
    </nav>
  );
}

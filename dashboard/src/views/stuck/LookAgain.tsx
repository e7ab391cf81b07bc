/** For what is looked at only when somebody asks: again from its beginning, and further where a page has ended. */
export function LookAgain({
  found,
}: {
  found: {
    isFetching: boolean;
    hasNextPage: boolean;
    refetch: () => Promise<unknown>;
    fetchNextPage: () => Promise<unknown>;
  };
}) {
  return (
    <div className="toolbar actions">
      <button type="button" disabled={found.isFetching} onClick={() => void found.refetch()}>
        Look again
      </button>
      {found.hasNextPage && (
        <button type="button" disabled={found.isFetching} onClick={() => void found.fetchNextPage()}>
          Look further
        </button>
      )}
    </div>
  );
}

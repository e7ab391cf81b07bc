import { Link, useRouteError } from "react-router";
import { Failure } from "../components/Notice";

/** In place of a view that could not be drawn: an answer was not what the page expects. */
export function Broken() {
  const error = useRouteError();
  return (
    <>
      <h1>This page cannot be shown</h1>
      <Failure error={error instanceof Error ? error : new Error(String(error))} />
      <p>
        The service may be of another version than this page: <Link to="/">All topologies</Link>, or load it
        again.
      </p>
    </>
  );
}

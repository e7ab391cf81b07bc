import { Link } from "react-router";

export function NotFound() {
  return (
    <>
      <h1>No such page</h1>
      <p>
        <Link to="/">All topologies</Link>
      </p>
    </>
  );
}

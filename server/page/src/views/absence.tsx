// Says that the server is away, came back with another page, or refuses to say what it serves.

import { useCell } from "../cell";
import { facts } from "../server/facts";

/** A live region has to be there before it says something. */
export function Absence() {
  return <div class="absence" role="status"><Told /></div>;
}

function Told() {
  const known = useCell(facts);
  if (known.state === "outdated") {
    return (
      <>
        The server is back, with another version of this page.{" "}
        <button type="button" onClick={() => location.reload()}>Load it</button>
      </>
    );
  }
  if (known.state === "failed") {
    return (
      <>
        {known.message} <button type="button" onClick={() => location.reload()}>Try again</button>
      </>
    );
  }
  if (known.state !== "waiting" || !known.isAway) return null;
  return <>The server is away. Your conversations are here, and this page goes on as soon as it is back.</>;
}

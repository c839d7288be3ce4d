// What drafting gains: the rate beside that of plain decoding, how much is accepted, and where the time goes.

import type { Turn } from "../../chat/turn";
import type { Passes } from "../../drafts/passes";

const MOST_DEPTHS = 16;

export function DraftFigures({ turn, passes }: { turn: Turn; passes: Passes }) {
  const plain = passes.plainRate();
  const whole = turn.timings?.predicted_per_second ?? null;
  const rate = turn.state === "running" ? (passes.rateNow() ?? whole) : whole;
  const length = passes.acceptanceLength();
  return (
    <dl class="draft-figures">
      <Figure name={turn.state === "running" ? "now" : "with drafts"} title="tokens per second" class="main">
        {rate === null ? "–" : <><b>{rate.toFixed(1)}</b> tok/s</>}
      </Figure>
      <Figure name="plain would be" title="by the cost of a pass of one token, as measured on this machine">
        {plain === null ? "–" : <><b>{plain.toFixed(1)}</b> tok/s</>}
      </Figure>
      {plain !== null && rate !== null && (
        <Figure name="speed-up" title="one over the other"><b>{(rate / plain).toFixed(2)}×</b></Figure>
      )}
      {length !== null && (
        <Figure name="AL" title="acceptance length: tokens per pass of the model"><b>{length.toFixed(2)}</b></Figure>
      )}
      <Figure name="guessed, kept" title="draft tokens that were verified, and those of them that are in the answer">
        <b>{passes.guessed.toLocaleString("en")}</b>, <b>{passes.kept.toLocaleString("en")}</b>
      </Figure>
      <ByDepth passes={passes} />
      <Times turn={turn} passes={passes} />
    </dl>
  );
}

interface FigureProps {
  name: string;
  title?: string;
  class?: string;
  children: preact.ComponentChildren;
}

export function Figure({ name, title, children, ...rest }: FigureProps) {
  return (
    <div title={title} class={rest.class}>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** How many of the passes that verified a node at a depth accepted one. */
function ByDepth({ passes }: { passes: Passes }) {
  const depths = passes.verifiedAt.slice(1, MOST_DEPTHS + 1).map((verified, index) => ({
    depth: index + 1,
    verified,
    accepted: passes.acceptedAt[index + 1]!,
  }));
  if (!depths.length) return null;
  const told = depths.map(({ depth, verified, accepted }) => `${depth}: ${Math.round((100 * accepted) / verified)}%`);
  return (
    <Figure name="accepted by depth" class="wide">
      <span class="depths" role="img" aria-label={told.join(", ")}>
        {depths.map(({ depth, verified, accepted }) => (
          <span key={depth} title={`depth ${depth}: ${accepted} of ${verified}`}>
            <i style={{ height: `${Math.max(2, (100 * accepted) / verified)}%` }} />
          </span>
        ))}
      </span>
    </Figure>
  );
}

function Times({ turn, passes }: { turn: Turn; passes: Passes }) {
  const total = turn.timings?.predicted_ms ?? 0;
  if (!(total > 0)) return null;
  const other = Math.max(0, total - passes.verifyMs - passes.draftMs);
  const parts = { verify: passes.verifyMs, draft: passes.draftMs, other };
  const all = parts.verify + parts.draft + parts.other;
  const shares = Object.entries(parts).map(([name, ms]) => ({ name, share: Math.round((100 * ms) / all), ms }));
  return (
    <Figure name={shares.map(({ name, share }) => `${name} ${share}%`).join(" · ")} class="full">
      <span class="shares" role="img" aria-label="where the time goes">
        {shares.map(({ name, share, ms }) => (
          <i key={name} class={name} title={`${name}: ${Math.round(ms)} ms`} style={{ flexGrow: share }} />
        ))}
      </span>
    </Figure>
  );
}

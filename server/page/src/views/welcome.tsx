// Shown where there is no conversation yet.

import { useCell } from "../cell";
import { facts } from "../server/facts";
import { type Modalities, modalities } from "../server/modalities";
import { chosen, models } from "../server/models";

export function Welcome() {
  const known = useCell(facts);
  const taken = useCell(modalities);
  if (known.state === "waiting" && !known.isAway) return <Loading progress={known.progress} />;
  if (known.state !== "ready") return <Away />;
  const { default_generation_settings: defaults, model_alias: model, dflash, role } = known.props;
  if (role === "router") return <Several />;
  if (!defaults) return <p class="welcome">This server has no model to chat with.</p>;
  return (
    <div class="welcome">
      <h1>{model}</h1>
      <p>
        {defaults.n_ctx.toLocaleString("en")} tokens of context,{" "}
        {drafting(dflash?.drafters ?? [])}. {senses(taken)}Everything stays on this machine.
      </p>
    </div>
  );
}

function drafting(drafters: { kind?: string }[]): string {
  const names = drafters.map(({ kind }) => (kind === "mtp" ? "MTP layers" : "a DFlash drafter"));
  return names.length ? `drafted by ${names.join(" and ")}` : "without a drafter";
}

function senses(taken: Modalities | null): string {
  if (taken?.vision) return `It sees pictures${taken.audio ? " and hears audio" : ""}. `;
  return taken?.audio ? "It hears audio. " : "";
}

function Several() {
  const count = useCell(models).length;
  const name = useCell(chosen);
  if (!count) return <p class="welcome">This server has no model yet.</p>;
  return (
    <div class="welcome">
      <h1>{name}</h1>
      <p>{count > 1 ? `One of ${count} models` : "The only model"}; it is loaded when it is first asked.</p>
    </div>
  );
}

/** What is the matter stands above (absence.tsx). */
function Away() {
  return <div class="welcome"><h1>dflash-local</h1></div>;
}

function Loading({ progress }: { progress: number | null }) {
  return (
    <div class="welcome">
      <p>{progress === null ? "Waiting for the server" : "The model is loading"}</p>
      {progress !== null && <progress value={progress} max={1} aria-label="loading" />}
    </div>
  );
}

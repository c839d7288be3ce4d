// The controller: what it chose last and why, how often it chose what, and where the time of a step goes.

import { Bars } from "../../charts/bars";
import { Stack } from "../../charts/stack";
import { byNumber } from "../../machine/by_number";
import type { Choices, Costs } from "../../server/answers";
import { digits, percent, whole } from "../../machine/words";
import { Card } from "./card";

/** The phases of a step (docs/architecture.md). */
const PHASES: Record<string, { colour: string; what: string }> = {
  plan: { colour: "plot-5", what: "choose the rows" },
  verify: { colour: "plot-1", what: "the target’s pass" },
  walk: { colour: "plot-3", what: "sample and accept" },
  commit: { colour: "plot-4", what: "keep the accepted path" },
  draft: { colour: "plot-2", what: "the drafter’s pass" },
  grow: { colour: "plot-6", what: "grow the next trees" },
  other: { colour: "plot-none", what: "everything else" },
};

interface Props {
  choices: Choices;
  phases: Record<string, number> | null;
  costs: Costs | null;
}

export function ChoicesCard({ choices, phases, costs }: Props) {
  const reasons = Object.entries(choices.reasons).sort(([, a], [, b]) => b - a);
  const lengths = byNumber(choices.lengths).map(([length, count]): [string, number] => [`${length} tokens`, count]);
  return (
    <Card id="choices" title="The controller" aside={choices.resting ? "the drafter rests" : undefined}>
      <p>{last(choices)}</p>
      {choices.drafter_failure && <p class="error">The drafter failed: {choices.drafter_failure}</p>}
      {reasons.length > 0 && (
        <>
          <h3>Why, in {whole(reasons.reduce((sum, [, count]) => sum + count, 0))} choices</h3>
          <Bars label="Reasons of the controller" counts={reasons} />
        </>
      )}
      {lengths.length > 0 && (
        <>
          <h3>Blocks that the drafter denoised</h3>
          <Bars label="Lengths of blocks" counts={lengths} />
        </>
      )}
      {phases && costs && <Phases phases={phases} />}
    </Card>
  );
}

function last({ reason, length, resting, plain_rate: plain, drafted_rate: drafted }: Choices): string {
  if (!reason) return "It has not chosen yet.";
  const block = length > 1 && !resting ? `; the last block had ${length} tokens` : "";
  const said = `Last choice: ${reason}${block}.`;
  if (!(drafted > 0 && plain > 0)) return said;
  const rates = `${digits(drafted)} tokens a second from drafted steps, ${digits(plain)} from one slot without drafts`;
  return `${said} Of late it expected ${rates}.`;
}

function Phases({ phases }: { phases: Record<string, number> }) {
  const known = Object.entries(phases).filter(([name, ms]) => name in PHASES && ms > 0);
  const all = known.reduce((sum, [, ms]) => sum + ms, 0);
  if (!all) return null;
  const parts = known.map(([name, ms]) => ({
    colour: PHASES[name]!.colour,
    value: ms,
    text: `${name} (${PHASES[name]!.what}): ${percent(ms / all)}`,
  }));
  return (
    <>
      <h3>Where the time of the steps went</h3>
      <Stack label={parts.map((part) => part.text).join(", ")} parts={parts} whole={all} />
      <ul class="legend">
        {known.map(([name, ms]) => (
          <li key={name} title={PHASES[name]!.what}>
            <span class={`swatch ${PHASES[name]!.colour}`} />{name} {percent(ms / all)}
          </li>
        ))}
      </ul>
    </>
  );
}

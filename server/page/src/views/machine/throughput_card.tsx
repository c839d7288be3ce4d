// The last minutes: tokens written and read, and tokens per pass.

import { area, curveStepAfter, line } from "d3-shape";
import { Plot, type Axis, type Scales } from "../../charts/plot";
import { SeriesTable } from "../../charts/series_table";
import { acceptanceLength, type History } from "../../machine/history";
import type { Machine, ThroughputSecond, Totals } from "../../server/answers";
import { digits, duration, percent, whole } from "../../machine/words";
import { Card } from "./card";

/** Seconds over which "now" is a mean. */
const NOW = 5;
const TABLE_SECONDS = 10;

export function ThroughputCard({ machine, history }: { machine: Machine; history: History }) {
  const { totals } = machine;
  const seconds = history.all;
  const told = { seconds, history };
  const prompts = (second: ThroughputSecond) => second.prompt_tokens;
  return (
    <Card id="throughput" title="Throughput" aside={totals && `${duration(totals.seconds)} since the model was loaded`}>
      <Headline machine={machine} history={history} />
      <Series {...told} title="tokens written a second" colour="plot-1" height={150} value={(second) => second.tokens} />
      <div class="pair-of-plots">
        <Series {...told} title="tokens of prompts read a second" colour="plot-2" height={110} value={prompts} />
        <Series {...told} title="tokens a pass brought (AL)" colour="plot-3" height={110} value={acceptanceLength} least={1} />
      </div>
      <Tens seconds={seconds} />
    </Card>
  );
}

function Headline({ machine, history }: { machine: Machine; history: History }) {
  const { totals } = machine;
  const { running, waiting } = machine.throughput!;
  const last = history.last(NOW);
  const length = acceptanceLength(last) ?? (totals && acceptanceLength(totals));
  const figures: [string, string, string][] = [
    [digits(last.tokens / NOW), "tok/s", `written, on the mean of the last ${NOW} seconds`],
    [length === null ? "–" : length.toFixed(2), "AL", "acceptance length: tokens that a pass of the model brings"],
    [`${running}`, running === 1 ? "request runs" : "requests run", "on a slot"],
    [`${waiting}`, "wait", "for a slot"],
  ];
  return (
    <>
      <ul class="headline">
        {figures.map(([value, unit, title]) => (
          <li key={unit} title={title}><b>{value}</b> {unit}</li>
        ))}
      </ul>
      {totals && totals.tokens > 0 && <p class="note">{inAll(totals)}</p>}
    </>
  );
}

function inAll({ tokens, passes, requests, prompt_tokens, draft_tokens, accepted }: Totals): string {
  const written = `In all ${whole(tokens)} tokens in ${whole(passes)} passes and ${whole(requests)} answers`;
  const share = draft_tokens > 0 && percent(accepted / draft_tokens);
  const drafts = share ? `; ${share} of ${whole(draft_tokens)} draft tokens accepted` : "";
  return `${written}, ${whole(prompt_tokens)} tokens of prompts read${drafts}.`;
}

interface SeriesProps {
  title: string;
  colour: string;
  height: number;
  seconds: ThroughputSecond[];
  history: History;
  value: (second: ThroughputSecond) => number | null;
  least?: number;
}

function Series({ title, colour, height, seconds, history, value, least = 0 }: SeriesProps) {
  const { window } = history;
  const end = Math.floor(history.now);
  const most = Math.max(least + 1, ...seconds.map((second) => value(second) ?? 0));
  const x: Axis = { domain: [end - window, end], title: "", ticks: minutes(end, window), format: (t) => ago(end - t) };
  const readout = (at: number) => {
    const second = history.at(Math.min(Math.floor(at), end - 1));
    const here = value(second);
    if (second.t < end - window) return null;
    const lines = [`${ago(end - second.t)}: ${here === null ? "–" : digits(here)}`];
    if (second.running) lines.push(`${second.running} running, ${second.waiting} waiting`);
    return { at: second.t + 0.5, lines };
  };
  const Marks = least ? Steps : Area;
  return (
    <figure>
      <figcaption>{title}</figcaption>
      <Plot
        label={`${title}, over the last ${duration(window)}`}
        height={height}
        x={x}
        y={{ domain: [least, most * 1.05], title: "", ticks: 3 }}
        readout={readout}
      >
        {(scales) => <g class={colour}><Marks {...{ seconds, value, scales }} /></g>}
      </Plot>
    </figure>
  );
}

type MarksProps = Pick<SeriesProps, "seconds" | "value"> & { scales: Scales };

function Area({ seconds, value, scales: { x, y } }: MarksProps) {
  const points = closed(seconds);
  const shape = area<ThroughputSecond>(({ t }) => x(t), y(0), (second) => y(value(second) ?? 0)).curve(curveStepAfter);
  const edge = line<ThroughputSecond>(({ t }) => x(t), (second) => y(value(second) ?? 0)).curve(curveStepAfter);
  return (
    <>
      <path class="area faint" d={shape(points) ?? ""} />
      <path class="line thin" d={edge(points) ?? ""} />
    </>
  );
}

/** The line is broken where there is no value. */
function Steps({ seconds, value, scales: { x, y } }: MarksProps) {
  const isKnown = (second: ThroughputSecond) => value(second) !== null;
  const edge = line<ThroughputSecond>(({ t }) => x(t + 0.5), (second) => y(value(second)!)).defined(isKnown);
  return (
    <>
      <path class="line" d={edge(seconds) ?? ""} />
      {seconds.filter(isKnown).map((second) => (
        <circle key={second.t} class="dot" cx={x(second.t + 0.5)} cy={y(value(second)!)} r="1.4" />
      ))}
    </>
  );
}

/** With an end point for the last second. */
function closed(seconds: ThroughputSecond[]): ThroughputSecond[] {
  const last = seconds.at(-1);
  return last ? [...seconds, { ...last, t: last.t + 1 }] : [];
}

function minutes(end: number, window: number): number[] {
  const step = window <= 150 ? 30 : window <= 330 ? 60 : 120;
  return Array.from({ length: Math.floor(window / step) + 1 }, (_, index) => end - index * step);
}

function ago(seconds: number): string {
  if (seconds <= 0) return "now";
  return seconds % 60 ? `−${Math.round(seconds)} s` : `−${seconds / 60} min`;
}

function Tens({ seconds }: { seconds: ThroughputSecond[] }) {
  const rows: (string | number)[][] = [];
  for (let end = seconds.length; end > 0; end -= TABLE_SECONDS) {
    const part = seconds.slice(Math.max(end - TABLE_SECONDS, 0), end);
    const sum = (name: "tokens" | "prompt_tokens" | "passes" | "accepted") =>
      part.reduce((all, one) => all + one[name], 0);
    const length = acceptanceLength({ passes: sum("passes"), accepted: sum("accepted") });
    if (!part.some((second) => second.busy)) continue;
    rows.push([
      ago(seconds.length - end + part.length),
      digits(sum("tokens") / part.length),
      digits(sum("prompt_tokens") / part.length),
      length === null ? "–" : length.toFixed(2),
      Math.max(...part.map((one) => one.running)),
    ]);
  }
  if (!rows.length) return null;
  const head = [`${TABLE_SECONDS} seconds from`, "written a second", "read a second", "AL", "running"];
  return <SeriesTable of="the throughput" head={head} rows={rows} />;
}

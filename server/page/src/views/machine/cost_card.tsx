// What a pass costs on this machine: the measured curve, its roofline, and how many rows the controller chose.

import { line } from "d3-shape";
import { Legend, type Entry } from "../../charts/legend";
import { Plot, type Scales, vertical } from "../../charts/plot";
import { SeriesTable } from "../../charts/series_table";
import { byNumber } from "../../machine/by_number";
import type { Choices, Costs, Fitted } from "../../server/answers";
import { bounds, digits, percent, rates } from "../../machine/words";
import { Card } from "./card";

interface Props {
  costs: Costs;
  roofline: Fitted | null;
  choices: Choices | null;
  size: number;
}

type Point = [number, number];

/** The plot has room for passes of up to this many times the fitted time of the widest pass. */
const BEYOND = 2;

const SOURCES: Record<string, string> = {
  measured: "measured at this start, corrected by every pass",
  cache: "measured at an earlier start, corrected by every pass",
};

export function CostCard({ costs, roofline, choices, size }: Props) {
  const verify = byNumber(costs.verify);
  const draft = byNumber(costs.draft);
  const nodes = byNumber(choices?.nodes ?? {});
  const widest = Math.max(...verify.map(([rows]) => rows));
  const most = Math.max(widest, ...[...draft, ...nodes].map(([count]) => count));
  return (
    <Card id="costs" title="What a pass costs here" aside={SOURCES[costs.source] ?? costs.source}>
      {roofline && <p>{bounds(roofline, widest)}</p>}
      <Curves {...{ verify, draft, roofline, widest, most }} />
      <Legend entries={entries(draft.length > 0, roofline)} />
      {nodes.length > 0 && <Nodes nodes={nodes} most={most} roofline={roofline} />}
      <p class="note">
        {roofline && `${rates(roofline, size, costs)} `}{surcharges(costs)}
      </p>
      <CostTable {...{ verify, draft, nodes, roofline }} />
    </Card>
  );
}

/** What else a step costs. */
function surcharges({ other, rebuild, cell }: Costs): string {
  const said: [number, string][] = [
    [other, "a step beyond its passes"],
    [rebuild, "a pass of another width than the last one’s"],
    [1000 * cell, "1,000 cells of context, for each row"],
  ];
  const known = said.filter(([ms]) => ms > 0).map(([ms, what]) => `${digits(ms)} ms for ${what}`);
  return known.length ? `On top of it come ${known.join(", ")}.` : "";
}

function entries(hasDrafter: boolean, roofline: Fitted | null): Entry[] {
  const found: Entry[] = [{ colour: "plot-1", shape: "dot", text: "target, by rows (measured)" }];
  if (hasDrafter) found.push({ colour: "plot-2", shape: "dot", text: "drafter, by tokens of its blocks (measured)" });
  if (roofline?.floor_ms != null) found.push({ colour: "plot-3", shape: "line", text: "reading the weights (fitted)" });
  if (roofline?.row_ms != null) found.push({ colour: "plot-4", shape: "line", text: "computing the rows (fitted)" });
  return found;
}

interface CurvesProps {
  verify: Point[];
  draft: Point[];
  roofline: Fitted | null;
  /** Rows of the widest measured pass of the target. */
  widest: number;
  /** Where the axis of rows ends. */
  most: number;
}

function Curves({ verify, draft, roofline, widest, most }: CurvesProps) {
  const longest = Math.max(...[...verify, ...draft].map(([, ms]) => ms));
  // One disturbed pass must not flatten all others.
  const top = roofline ? Math.min(longest, BEYOND * fitted(roofline, most)) : longest;
  const readout = (at: number) => {
    const near = nearest(verify, at);
    if (!near) return null;
    const [rows, ms] = near;
    const lines = [`${rows} row${rows > 1 ? "s" : ""}: ${digits(ms)} ms`, `${digits(ms / rows)} ms a row`];
    const drafted = draft.find(([tokens]) => tokens === near[0]);
    if (drafted) lines.push(`drafter: ${digits(drafted[1])} ms`);
    if (roofline) lines.push(`fitted: ${digits(fitted(roofline, near[0]))} ms`);
    return { at: near[0], lines };
  };
  return (
    <Plot
      label={`Milliseconds of a pass of the target by its rows, 1 to ${widest}; the numbers are in the table below`}
      height={280}
      x={{ domain: [0, most + 1], title: "rows of the pass", format: String }}
      y={{ domain: [0, top * 1.05], title: "milliseconds" }}
      readout={readout}
    >
      {(scales) => (
        <>
          {roofline && <RooflineMarks roofline={roofline} widest={widest} scales={scales} />}
          <CurveMarks points={draft} colour="plot-2" scales={scales} />
          <CurveMarks points={verify} colour="plot-1" scales={scales} />
        </>
      )}
    </Plot>
  );
}

function CurveMarks({ points, colour, scales: { x, y } }: { points: Point[]; colour: string; scales: Scales }) {
  const top = y.domain[1];
  const path = line<Point>(([rows]) => x(rows), ([, ms]) => y(Math.min(ms, top)))(points);
  return (
    <g class={colour}>
      <path class="line thin" d={path ?? ""} />
      {points.map(([rows, ms]) =>
        ms > top ? (
          <path key={rows} class="area" d={`M${x(rows) - 5} ${y(top) + 4}h10l-5 -8z`} />
        ) : (
          <circle key={rows} class="dot" cx={x(rows)} cy={y(ms)} r="3" />
        ),
      )}
    </g>
  );
}

/** The bound that counts is a solid line, the other one dashed. */
function RooflineMarks({ roofline, widest, scales }: { roofline: Fitted; widest: number; scales: Scales }) {
  const { floor_ms: floor, row_ms: row, knee } = roofline;
  const { x, y } = scales;
  const turn = Math.min(knee ?? (floor === null ? 0 : widest), widest);
  return (
    <>
      {floor !== null && (
        <g class="plot-3">
          <line class="bound" x1={x(0)} x2={x(turn)} y1={y(floor)} y2={y(floor)} />
          <line class="dashes" x1={x(turn)} x2={x(widest)} y1={y(floor)} y2={y(floor)} />
        </g>
      )}
      {row !== null && (
        <g class="plot-4">
          <line class="dashes" x1={x(0)} x2={x(turn)} y1={y(0)} y2={y(turn * row)} />
          <line class="bound" x1={x(turn)} x2={x(widest)} y1={y(turn * row)} y2={y(widest * row)} />
        </g>
      )}
      {knee !== null && knee <= widest && (
        <g class="knee">
          <line class="dashes" {...vertical(scales, knee)} />
          <text x={x(knee) + 6} y={y.range[1] + 4}>knee: {digits(knee)} rows</text>
        </g>
      )}
    </>
  );
}

/** How often a slot's tree had how many rows: below the curve, with the same axis. */
function Nodes({ nodes, most, roofline }: Pick<CurvesProps, "most" | "roofline"> & { nodes: Point[] }) {
  const all = nodes.reduce((sum, [, count]) => sum + count, 0);
  const share = Math.max(...nodes.map(([, count]) => count / all));
  const middle = median(nodes);
  const readout = (at: number) => {
    const near = nearest(nodes, at);
    return near && { at: near[0], lines: [`${near[0]} nodes`, `${percent(near[1] / all)} of the passes`] };
  };
  return (
    <figure>
      <figcaption>
        What the controller made of it: nodes of a slot’s tree, the anchor counted, in the middle <b>{middle}</b>
      </figcaption>
      <Plot
        label={`How often a tree had how many nodes; half of them had at most ${middle}`}
        height={130}
        x={{ domain: [0, most + 1], title: "nodes of the tree", format: String }}
        y={{ domain: [0, share * 1.05], title: "", ticks: 3, format: percent }}
        readout={readout}
      >
        {(scales) => (
          <>
            {nodes.map(([count, times]) => <Column key={count} {...{ count, share: times / all, scales }} />)}
            {roofline?.knee != null && roofline.knee <= most && (
              <g class="knee"><line class="dashes" {...vertical(scales, roofline.knee)} /></g>
            )}
          </>
        )}
      </Plot>
    </figure>
  );
}

function Column({ count, share, scales: { x, y } }: { count: number; share: number; scales: Scales }) {
  const width = Math.max(x(1) - x(0) - 2, 2);
  return (
    <g class="plot-1">
      <rect class="area" x={x(count) - width / 2} width={width} y={y(share)} height={y(0) - y(share)} rx="1.5" />
    </g>
  );
}

type TableProps = Pick<CurvesProps, "verify" | "draft" | "roofline"> & { nodes: Point[] };

function CostTable({ verify, draft, nodes, roofline }: TableProps) {
  const drafts = new Map(draft);
  const counts = new Map(nodes);
  const rows = [...new Set([...verify, ...draft, ...nodes].map(([count]) => count))].sort((a, b) => a - b);
  const targets = new Map(verify);
  const cell = (value: number | undefined) => (value === undefined ? "" : digits(value));
  return (
    <SeriesTable
      of="what a pass costs"
      head={["rows", "target, ms", "fitted, ms", "drafter, ms", "trees"]}
      rows={rows.map((count) => [
        count,
        cell(targets.get(count)),
        roofline ? digits(fitted(roofline, count)) : "",
        cell(drafts.get(count)),
        counts.get(count) ?? "",
      ])}
    />
  );
}

function fitted({ floor_ms, row_ms }: Fitted, rows: number): number {
  return Math.max(floor_ms ?? 0, rows * (row_ms ?? 0));
}

function nearest(points: Point[], at: number): Point | null {
  let found: Point | null = null;
  for (const point of points) if (!found || Math.abs(point[0] - at) < Math.abs(found[0] - at)) found = point;
  return found;
}

function median(counts: Point[]): number {
  let left = counts.reduce((sum, [, count]) => sum + count, 0) / 2;
  for (const [value, count] of counts) {
    left -= count;
    if (left <= 0) return value;
  }
  return 0;
}

// Numbers with their units, and what the roofline says in words.

import type { Costs, Fitted } from "../server/answers";

const KIB = 1024;

/** Bytes as GiB, MiB or KiB. */
export function bytes(count: number): string {
  if (count >= KIB ** 3) return `${digits(count / KIB ** 3)} GiB`;
  if (count >= KIB ** 2) return `${digits(count / KIB ** 2)} MiB`;
  return `${digits(count / KIB)} KiB`;
}

/** A number with three significant digits, never in powers of ten. */
export function digits(value: number): string {
  const size = Math.abs(value);
  if (size >= 100 || size === 0) return whole(value);
  return value.toFixed(size >= 10 ? 1 : size >= 1 ? 2 : size >= 0.1 ? 2 : 3);
}

/** A round number, as the ticks of an axis are. */
export function tickText(value: number): string {
  return value.toLocaleString("en", { maximumSignificantDigits: 4 });
}

export function whole(value: number): string {
  return Math.round(value).toLocaleString("en");
}

/** Parameters of a model: 5.6 M, 0.6 B. */
export function parameters(count: number): string {
  return count >= 1e9 ? `${digits(count / 1e9)} B` : `${digits(count / 1e6)} M`;
}

export function percent(share: number): string {
  if (share > 0 && share < 0.0005) return "<0.1 %";
  return `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
}

/** 40 s, 12 min, 3.5 h. */
export function duration(seconds: number): string {
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  return seconds < 7200 ? `${Math.floor(seconds / 60)} min` : `${digits(seconds / 3600)} h`;
}

/** What bounds a pass on this machine, and what that means for drafts. */
export function bounds({ floor_ms, row_ms, knee }: Fitted, widest: number): string {
  if (floor_ms !== null && row_ms !== null && knee !== null) {
    const rows = Math.max(1, Math.round(knee));
    const reading = `A pass of few rows takes about ${digits(floor_ms)} ms, whatever their number: it reads all weights.`;
    if (rows <= 1) return `${reading} Computing takes as long from the first row on, ${digits(row_ms)} ms a row.`;
    return (
      `${reading} Only from about ${rows} rows on does computing them take longer, ${digits(row_ms)} ms a row. ` +
      `Below that a pass that checks drafts costs little more than one that writes a single token: ` +
      `this is the time that drafting uses.`
    );
  }
  if (floor_ms !== null) {
    return (
      `All measured passes, up to ${widest} rows, take about the ${digits(floor_ms)} ms that reading the weights ` +
      `takes: checking drafts is almost free here.`
    );
  }
  return `Computing bounds every pass here, by about ${digits(row_ms!)} ms a row: drafts have to be good to pay.`;
}

/** What the two ends of the curve say in the machine's units. */
export function rates({ bytes_per_second, rows_per_second }: Fitted, size: number, costs: Costs): string {
  const widest = Math.max(...Object.keys(costs.verify).map(Number));
  const one = costs.verify["1"];
  const said = [];
  if (bytes_per_second !== null && one) {
    said.push(`One row: ${bytes(size)} of weights in ${digits(one)} ms, ${digits(bytes_per_second / 1e9)} GB/s.`);
  }
  if (rows_per_second !== null) {
    said.push(`${widest} rows: ${digits(costs.verify[String(widest)]!)} ms, ${whole(rows_per_second)} rows a second.`);
  }
  return said.join(" ");
}

// A linear scale: from values to pixels.

import { ticks } from "d3-array";

type Pair = [number, number];

export interface Linear {
  (value: number): number;
  domain: Pair;
  range: Pair;
  invert(pixel: number): number;
  /** About this many round values. */
  ticks(count: number): number[];
}

export function linear(domain: Pair, range: Pair): Linear {
  const slope = (range[1] - range[0]) / (domain[1] - domain[0] || 1);
  const scale = (value: number) => range[0] + (value - domain[0]) * slope;
  const invert = (pixel: number) => domain[0] + (pixel - range[0]) / (slope || 1);
  return Object.assign(scale, { domain, range, invert, ticks: (count: number) => ticks(...domain, count) });
}

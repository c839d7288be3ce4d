// A plot: axes with ticks and a grid, marks between them, and in words what the pointer is over.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { tickText } from "../machine/words";
import { type Linear, linear } from "./linear";
import { useWidth } from "./width";

export interface Axis {
  domain: [number, number];
  /** What it counts, at its end. */
  title: string;
  /** About how many ticks there should be, or which. */
  ticks?: number | number[];
  format?: (value: number) => string;
}

export interface Scales {
  x: Linear;
  y: Linear;
}

export interface Readout {
  /** Its place on the x axis. */
  at: number;
  lines: string[];
}

interface Props {
  /** What it shows, for people who cannot see it. */
  label: string;
  height: number;
  x: Axis;
  y: Axis;
  /** What is at a place on the x axis. */
  readout?: (x: number) => Readout | null;
  children: (scales: Scales) => ComponentChildren;
}

const MARGIN = { left: 44, right: 14, top: 18, bottom: 22 };
const TITLE_HEIGHT = 14;
const PIXELS_PER_TICK = 80;

export function Plot({ label, height, x, y, readout, children }: Props) {
  const [place, width] = useWidth<HTMLDivElement>();
  const [pointer, setPointer] = useState<number | null>(null);
  const scales = {
    x: linear(x.domain, [MARGIN.left, Math.max(width - MARGIN.right, MARGIN.left + 1)]),
    y: linear(y.domain, [height - MARGIN.bottom - (x.title ? TITLE_HEIGHT : 0), y.title ? MARGIN.top : MARGIN.top / 2]),
  };
  const read = pointer === null ? null : (readout?.(scales.x.invert(pointer)) ?? null);
  const onMove = (event: PointerEvent & { currentTarget: SVGSVGElement }) =>
    setPointer(event.clientX - event.currentTarget.getBoundingClientRect().left);
  return (
    <div class="plot" ref={place}>
      {width > 0 && (
        <svg
          width={width}
          height={height}
          role="img"
          aria-label={label}
          onPointerMove={onMove}
          onPointerDown={onMove}
          onPointerLeave={() => setPointer(null)}
        >
          <YAxis axis={y} scales={scales} />
          <XAxis axis={x} scales={scales} />
          {read && <line class="reading" {...vertical(scales, read.at)} />}
          {children(scales)}
        </svg>
      )}
      {read && <Reading at={scales.x(read.at)} width={width} lines={read.lines} />}
    </div>
  );
}

/** Coordinates of a line from the bottom to the top. */
export function vertical({ x, y }: Scales, at: number) {
  const [y1, y2] = y.range;
  return { x1: x(at), x2: x(at), y1, y2 };
}

function YAxis({ axis, scales: { x, y } }: { axis: Axis; scales: Scales }) {
  const [left, right] = x.range;
  const format = axis.format ?? tickText;
  return (
    <g class="axis">
      {ticksOf(axis, y, 4).map((tick) => (
        <g key={tick}>
          <line class="grid" x1={left} x2={right} y1={y(tick)} y2={y(tick)} />
          <text x={left - 6} y={y(tick)} dy="0.35em" text-anchor="end">{format(tick)}</text>
        </g>
      ))}
      <text class="title" x={left - 38} y={9}>{axis.title}</text>
    </g>
  );
}

function XAxis({ axis, scales: { x, y } }: { axis: Axis; scales: Scales }) {
  const [left, right] = x.range;
  const bottom = y.range[0];
  const count = Math.max(2, Math.floor((right - left) / PIXELS_PER_TICK));
  const format = axis.format ?? tickText;
  return (
    <g class="axis">
      <line class="base" x1={left} x2={right} y1={bottom} y2={bottom} />
      {ticksOf(axis, x, count).map((tick) => (
        <g key={tick}>
          <line class="base" x1={x(tick)} x2={x(tick)} y1={bottom} y2={bottom + 4} />
          <text x={x(tick)} y={bottom + 15} text-anchor="middle">{format(tick)}</text>
        </g>
      ))}
      <text class="title" x={right} y={bottom + 30} text-anchor="end">{axis.title}</text>
    </g>
  );
}

function ticksOf({ ticks }: Axis, scale: Linear, count: number): number[] {
  return Array.isArray(ticks) ? ticks : scale.ticks(ticks ?? count);
}

function Reading({ at, width, lines }: { at: number; width: number; lines: string[] }) {
  const isLeft = at > width / 2;
  const place = isLeft ? { right: `${width - at + 8}px` } : { left: `${at + 8}px` };
  return (
    <div class="readout" style={place} aria-hidden="true">
      {lines.map((line) => <div key={line}>{line}</div>)}
    </div>
  );
}

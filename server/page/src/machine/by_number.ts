// Counts or times by number, in its order.

export function byNumber(values: Record<string, number>): [number, number][] {
  return Object.entries(values)
    .map(([key, value]): [number, number] => [Number(key), value])
    .sort(([a], [b]) => a - b);
}

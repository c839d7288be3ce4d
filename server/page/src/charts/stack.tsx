// A bar of parts side by side, of a whole that may be larger than their sum.

import { useWidth } from "./width";

export interface StackPart {
  colour: string;
  value: number;
  text: string;
}

const HEIGHT = 18;

export function Stack({ label, parts, whole }: { label: string; parts: StackPart[]; whole: number }) {
  const [place, width] = useWidth<HTMLDivElement>();
  let at = 0;
  return (
    <div class="stack" ref={place}>
      {width > 0 && (
        <svg width={width} height={HEIGHT} role="img" aria-label={label}>
          <rect class="rest" width={width} height={HEIGHT} rx="4" />
          {parts.map(({ colour, value, text }) => {
            const x = (at / whole) * width;
            at += value;
            return (
              <g key={text} class={colour}>
                <rect class="area" x={x} width={Math.max((value / whole) * width - 1, 0.5)} height={HEIGHT} rx="2">
                  <title>{text}</title>
                </rect>
              </g>
            );
          })}
        </svg>
      )}
    </div>
  );
}

// Series over time, drawn by uPlot; loaded with the first chart.

import uPlot from "uplot";
import { effect } from "@preact/signals";
import { theme } from "./theme.ts";

/** Draw lines over hours into a place; return what takes them away again. */
export function draw(place: HTMLElement, hours: number[], series: Map<string, (number | null)[]>): () => void {
  let plot: uPlot | null = null;
  const make = (): void => {
    plot?.destroy();
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string): string => style.getPropertyValue(name).trim();
    const colours = ["--working", "--idle", "--link", "--text-soft"].map(colour);
    const axis = { stroke: colour("--text-soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    // A count stays what it is until the next event.
    const stepped = uPlot.paths.stepped?.({ align: 1 });
    plot = new uPlot(
      {
        width: place.clientWidth,
        height: 260,
        scales: { x: { time: false } },
        axes: [{ ...axis, values: (_, ticks) => ticks.map((hour) => `${hour} h`) }, axis],
        series: [
          { label: "hours" },
          ...[...series.keys()].map((label, index) => ({
            label,
            stroke: colours[index % colours.length]!,
            // Lines are told apart without their colours, too.
            dash: index === 0 ? [] : [4 + 4 * index, 4],
            width: 1.5,
            ...(stepped && { paths: stepped }),
          })),
        ],
      },
      [hours, ...series.values()],
      place,
    );
  };
  const stop = effect(() => {
    void theme.value;
    make();
  });
  const resized = new ResizeObserver(() => plot?.setSize({ width: place.clientWidth, height: 260 }));
  resized.observe(place);
  return () => {
    stop();
    resized.disconnect();
    plot?.destroy();
  };
}

// Series over time, drawn by uPlot; loaded with the first chart.

import uPlot from "uplot";
import { effect } from "@preact/signals";
import { theme } from "./theme.ts";

type Series = Map<string, (number | null)[]>;
type Options = Pick<uPlot.Options, "scales"> & { x: uPlot.Axis; y: uPlot.Axis; label: string };

/** Draw lines over hours into a place; return what takes them away again. */
export function draw(place: HTMLElement, hours: number[], series: Series): () => void {
  const x = { label: "hours since the start of the trace", values: (_: uPlot, ticks: number[]) => ticks.map((hour) => `${hour} h`) };
  return drawn(place, hours, series, { scales: { x: { time: false } }, x, y: { label: "displaced units" }, label: "hours" });
}

/** Draw lines over instants, in seconds since the epoch; `pick` is told which one was clicked. */
export function drawTimes(place: HTMLElement, times: number[], series: Series, unit: string, pick: ((at: number) => void) | null): () => void {
  const y: uPlot.Axis = { label: unit };
  const day = "{YYYY}-{MM}-{DD}";
  const minute = "{HH}:{mm}";
  const zone = [[86400, day, null, null, null, null, null, null, 1], [60, minute, `\n${day}`, null, `\n${day}`, null, null, null, 1], [1, "{HH}:{mm}:{ss}", `\n${day}`, null, `\n${day}`, null, null, null, 1]];
  return drawn(place, times, series, { scales: { x: { time: true }, y: { range: (_, __, most) => [0, Math.max(1, most * 1.05)] } }, x: { values: zone as uPlot.Axis.Values, space: 90 }, y, label: "time" }, pick);
}

function drawn(place: HTMLElement, xs: number[], series: Series, options: Options, pick: ((at: number) => void) | null = null): () => void {
  let plot: uPlot | null = null;
  const make = (): void => {
    plot?.destroy();
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string): string => style.getPropertyValue(name).trim();
    const colours = [1, 2, 3, 4, 5, 6].map((each) => colour(`--series-${each}`));
    const axis = { stroke: colour("--text-soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, labelSize: 18, labelFont: "12px system-ui, sans-serif" };
    // A count stays what it is until the next event.
    const stepped = uPlot.paths.stepped?.({ align: 1 });
    plot = new uPlot(
      {
        width: place.clientWidth,
        height: 260,
        scales: options.scales!,
        axes: [{ ...axis, ...options.x }, { ...axis, ...options.y }],
        series: [
          { label: options.label, ...(options.scales?.["x"]?.time && { value: "{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}" }) },
          ...[...series.keys()].map((label, index) => ({
            label,
            // What is summed up is no line of its own.
            stroke: index < colours.length ? colours[index]! : colour("--text-soft"),
            // Lines are told apart without their colours, too.
            dash: index === 0 ? [] : [4 + 4 * index, 4],
            width: 1.5,
            ...(stepped && { paths: stepped }),
          })),
        ],
      },
      [xs, ...series.values()],
      place,
    );
    if (pick) {
      const { over } = plot;
      over.style.cursor = "pointer";
      over.addEventListener("click", () => {
        const left = plot?.cursor.left ?? -1;
        if (plot && left >= 0) pick(plot.posToVal(left, "x"));
      });
    }
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

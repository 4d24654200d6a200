// Numbers, durations and instants as people read them, each always in the same width of idea.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

export const number = (value: number): string =>
  Number.isInteger(value) || Math.abs(value) >= 1000 ? whole.format(value) : fine.format(value);

/** At most two units: `6 h 10 m`, `3 d`, `41 m`, `12 s`, `0.4 s`. */
export function duration(seconds: number): string {
  const sign = seconds < 0 ? "−" : "";
  const size = Math.abs(seconds);
  if (size < 10 && !Number.isInteger(size)) return `${sign}${size.toFixed(1)} s`;
  const s = Math.round(size);
  if (s < 60) return `${sign}${s} s`;
  if (s < 600 && s % 60) return `${sign}${Math.floor(s / 60)} m ${s % 60} s`;
  const m = Math.floor(s / 60);
  if (m < 60) return `${sign}${m} m`;
  const h = Math.floor(m / 60);
  if (h < 24) return `${sign}${h} h${m % 60 ? ` ${m % 60} m` : ""}`;
  const d = Math.floor(h / 24);
  return `${sign}${d} d${d < 10 && h % 24 ? ` ${h % 24} h` : ""}`;
}

const clockTime = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
});
const day = new Intl.DateTimeFormat("en-CA", {
  year: "numeric",
  month: "2-digit",
  day: "2-digit",
});

/** `+02:00`, the zone of this browser at that instant. */
function zone(date: Date): string {
  const minutes = -date.getTimezoneOffset();
  if (minutes === 0) return "UTC";
  const two = (value: number): string => String(Math.floor(Math.abs(value))).padStart(2, "0");
  return `UTC${minutes < 0 ? "−" : "+"}${two(minutes / 60)}:${two(minutes % 60)}`;
}

/** `2026-11-23 13:57:02 UTC+02:00`. */
export function instant(seconds: number): string {
  const date = new Date(seconds * 1000);
  return `${day.format(date)} ${clockTime.format(date)} ${zone(date)}`;
}

/** `13:57:02` today, else with the day. */
export function shortInstant(seconds: number, now: number): string {
  const date = new Date(seconds * 1000);
  const today = day.format(date) === day.format(new Date(now * 1000));
  return today ? clockTime.format(date) : `${day.format(date)} ${clockTime.format(date).slice(0, 5)}`;
}

export const iso = (seconds: number): string => new Date(seconds * 1000).toISOString();

const KNOWN: Record<string, string> = {
  gpus: "GPUs",
  gpu_hours: "GPU-hours",
  gpuHours: "GPU-hours",
  id: "id",
  uid: "UID",
};

/** `waits_since` and `waitsSince` as `waits since`. */
export function words(name: string): string {
  const known = KNOWN[name];
  if (known) return known;
  const parted = name.replaceAll(/([a-z0-9])([A-Z])/g, "$1 $2").replaceAll(/[_-]/g, " ");
  return parted.toLowerCase().replaceAll(/\bgpus?\b/g, (found) =>
    found === "gpu" ? "GPU" : "GPUs",
  );
}

export const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

/** A record's plane and the first part of its id: `quota-1927a8b8`; what is no such name as it is. */
export const shortRecord = (name: string): string =>
  /^([a-z]+-[0-9a-f]{8})-[0-9a-f-]{8,}$/.exec(name)?.[1] ?? name;

export interface Unit {
  kind: string;
  namespace: string;
  name: string;
}

/** A unit that may be named; null for another tenant's work. */
export function unitOf(id: string): Unit | null {
  const parts = id.split("/");
  if (parts.length !== 3 || parts.some((part) => !part)) return null;
  return { kind: parts[0]!, namespace: parts[1]!, name: parts[2]! };
}

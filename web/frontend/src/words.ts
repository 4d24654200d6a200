// What the words of enumerations look like: a shape for how it stands, and whether to look at it.
//
// Shape and text say the same, so that neither colour nor shape is needed to read a word. A word
// that is not known here is shown with a plain square.

export type Shape = "full" | "half" | "ring" | "slash" | "cross" | "alert" | "square" | "check";
export type Tone = "" | "attention" | "quiet";

const SHAPES: [Shape, Tone, string[]][] = [
  ["full", "", ["running", "runs", "working", "active", "admitted", "leader", "live", "ready", "held",
    "watching"]],
  ["check", "", ["completed", "succeeded", "finished", "starts", "reprieved", "irreducible", "same", "ok",
    "resumed", "requeued", "recovered"]],
  ["half", "", ["idle", "borrowed", "borrows", "partial", "suspended", "claimed", "reserved", "starting",
    "spared", "startswithvictims", "notserved"]],
  ["ring", "quiet", ["waiting", "waits", "pending", "queued", "pendinggpu", "planned", "free", "gated",
    "open", "behindhead", "backoff", "heldbyothers"]],
  ["slash", "", ["leaving", "leaves", "evicting", "terminating", "executing", "stopping", "victimsleaving"]],
  ["cross", "attention", ["evicted", "displaced", "madeway", "preempted", "reclaimed"]],
  ["alert", "attention", ["neverfits", "failed", "refused", "stuck", "lost", "differs", "unproven",
    "expired", "blocked", "overdue", "error", "notready", "abandoned", "stale", "invalid", "stopped",
    "noflavormatches", "nonodematches", "setaside", "groupmissing", "notuniform", "stalemetrics",
    "forbidden", "unreachable", "failing"]],
];

const LOOKS = new Map(
  SHAPES.flatMap(([shape, tone, words]) => words.map((word) => [word, { shape, tone }] as const)),
);

export const look = (word: string): { shape: Shape; tone: Tone } =>
  LOOKS.get(word.toLowerCase().replaceAll(/[^a-z]/g, "")) ?? { shape: "square", tone: "" };

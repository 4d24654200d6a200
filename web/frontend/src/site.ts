// The pages that can be gone to, in the order in which they stand.

export const PAGES: [page: string, path: string, title: string][] = [
  ["now", "/", "Now"],
  ["mine", "/mine", "My work"],
  ["waiting", "/waiting", "Waiting"],
  ["preemptions", "/preemptions", "Preemptions"],
  ["queues", "/queues", "Queues"],
  ["harm", "/harm", "Harm"],
  ["plan", "/plan", "Plan"],
  ["study", "/study", "Study"],
  ["health", "/health", "Health"],
];

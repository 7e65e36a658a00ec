// Numbers and times as people read them.
export function short(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "object") return JSON.stringify(value);
  return typeof value !== "number" || Number.isInteger(value) ? String(value) : fourDigits(value);
}

// 0.00093, 1.2e-05, 1.235e+05: as tuner/results/text.py writes a number that is no whole one.
function fourDigits(value) {
  const [digits, power] = value.toExponential(3).split("e").map(Number);
  if (power >= -4 && power < 4) return String(Number(value.toPrecision(4)));
  return `${digits}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
}

export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const minutes = Math.round(whole / 60);
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.round(minutes / 60 / 24)} days`;
}

export function hours(value) {
  if (value < 1 / 60) return `${Number((value * 3600).toPrecision(2))} s`;
  return value < 1 ? `${Number((value * 60).toPrecision(2))} min` : `${Number(value.toPrecision(3))} h`;
}

const sameDay = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const otherDay = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

export function moment(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const date = new Date(seconds * 1000);
  const today = new Date().toDateString() === date.toDateString();
  return (today ? sameDay : otherDay).format(date);
}

export function ago(seconds) {
  return `${duration(Date.now() / 1000 - seconds)} ago`;
}

export function plural(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

export function percent(share) {
  return `${Math.round(100 * share)} %`;
}

const ENDED = ["completed", "stopped", "failed"];

// Trials that ended, and of how many; null where nobody knows.
export function progressOf(trials, wanted) {
  const ended = ENDED.reduce((sum, status) => sum + (trials[status] ?? 0), 0);
  return { ended, share: wanted ? Math.min(1, ended / wanted) : null };
}

export function doneOf(progress) {
  if (!progress) return "";
  const { ended } = progressOf(progress.trials, progress.wanted);
  return progress.wanted ? `${ended} of ${plural(progress.wanted, "trial")}` : plural(ended, "trial");
}

export function leftOf(left) {
  return left ? `${duration(left[0])} to ${duration(left[2])}` : "";
}

// Asks the server; a refusal is an Error whose message is the server's own sentence and whose status is its code, 0
// where no answer comes.
const API = "/api/v1/";

export async function get(path) {
  return ask("GET", path);
}

export async function ask(method, path, body) {
  const options = { method, headers: {} };
  if (body !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const answer = await fetch(API + path, options).catch(() => {
    throw Object.assign(new Error("the server doesn't answer; try again once the page is live"), { status: 0 });
  });
  if (answer.status === 401) {
    location.replace(`/login?next=${encodeURIComponent(location.pathname + location.search)}${location.hash}`);
    return new Promise(() => {}); // the page goes
  }
  const type = answer.headers.get("content-type") ?? "";
  const text = await answer.text();
  const told = type.includes("json") && text ? JSON.parse(text) : text;
  if (!answer.ok) throw Object.assign(new Error(told.detail ?? `the server answered ${answer.status}`), { status: answer.status });
  return told;
}

// Marks refusals with these codes: without an answer there is nothing to show on the page.
export async function ofPage(answer, codes = [404]) {
  try {
    return await answer;
  } catch (error) {
    throw Object.assign(error, { ofPage: codes.includes(error.status) });
  }
}

export const path = (parts, query = {}) => {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of [value].flat()) {
      if (each !== null && each !== undefined && each !== "") asked.append(name, each);
    }
  }
  const text = asked.toString();
  return parts.map(encodeURIComponent).join("/") + (text && `?${text}`);
};

// Logs in; behind a link that works once, sets the password first.
const form = document.getElementById("enter");
const problem = document.getElementById("problem");

async function post(path, body) {
  const answer = await fetch(`/api/v1/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  if (!answer.ok) {
    const told = await answer.json();
    throw new Error(told.detail);
  }
  return answer.json();
}

async function enter() {
  const { name, password } = Object.fromEntries(new FormData(form));
  let user = name;
  if (form.dataset.welcome === "yes") {
    const secret = location.hash.slice(1);
    user = (await post("welcome", { secret, name, password })).name;
  }
  await post("login", { name: user, password });
  location.replace(next());
}

// The page that asked for a login; nothing elsewhere, whatever a link says.
function next() {
  const asked = new URLSearchParams(location.search).get("next");
  if (!asked || !URL.canParse(asked, location.origin)) return "/";
  const { origin, pathname, search } = new URL(asked, location.origin);
  return origin === location.origin ? pathname + search + location.hash : "/";
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  problem.textContent = "";
  const button = form.querySelector("button");
  button.disabled = true;
  try {
    await enter();
  } catch (error) {
    problem.textContent = error.message;
  } finally {
    button.disabled = false;
  }
});

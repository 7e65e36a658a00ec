// Follows a link that works once and needs no password of its user: one is made up, used and forgotten.
const problem = document.getElementById("problem");

async function post(path, body) {
  const answer = await fetch(`/api/v1/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error((await answer.json()).detail);
  return answer.json();
}

async function open() {
  if ((await fetch("/api/v1/users/me")).ok) {
    location.replace("/studies/1"); // this browser has been here
    return;
  }
  const password = Array.from(crypto.getRandomValues(new Uint8Array(32)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const user = await post("welcome", { secret: location.hash.slice(1), password });
  await post("login", { name: user.name, password });
  location.replace("/studies/1");
}

open().catch((error) => {
  problem.textContent = error.message;
});

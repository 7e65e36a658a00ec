// What belongs to who has logged in: tokens, webhooks, the password; for admins also the users.
import { ask, get, path } from "./api.js";
import { el, show, table, tell } from "./dom.js";
import { EVENTS, ROLES, SUBMITS } from "./looks.js";
import { moment } from "./text.js";

const MOST = { limit: 200 };

export function accountPage(again) {
  const main = document.getElementById("main");
  const made = el("p", { id: "made", role: "status", "data-keep": "" }); // what is shown once
  const forms = formsOf();
  let me = null;
  let found = null;
  let first = true;

  const ACTIONS = {
    revoke: (id) => ask("DELETE", path(["tokens", id])),
    test: async (id) => {
      const sent = await ask("POST", `${path(["webhooks", id])}:test`);
      tell(`Webhook ${id}: ${sent.state}${sent.problem ? `, ${sent.problem}` : ""}.`);
    },
    unhook: (id) => ask("DELETE", path(["webhooks", id])),
    link: async (name) => once(`${name} sets a password with this link, which works once: `, (await ask("POST", `${path(["users", name])}:link`)).link),
    save: (name, row) => ask("PATCH", path(["users", name]), changesOf(row)),
    back: (name) => ask("PATCH", path(["users", name]), { disabled: false }),
    remove: async (name) => window.confirm(`Remove ${name}? Their studies stay.`) && ask("DELETE", path(["users", name])),
  };
  const MADE = {
    token: async ({ name, role, days }) => once("The new token, which is shown only now: ", (await ask("POST", "tokens", { name, role, days: Number(days) })).secret),
    webhook: async ({ url }, form) => {
      const events = [...form.querySelectorAll("[name=event]:checked")].map((box) => box.value);
      once("The new webhook signs with this secret, which is shown only now: ", (await ask("POST", "webhooks", { url, events })).secret);
    },
    user: async ({ name, role }) => once(`${name} sets a password with this link, which works once: `, (await ask("POST", "users", { name, role })).link),
    password: async ({ old_password, new_password }) => {
      await ask("PUT", "users/me/password", { old_password, new_password });
      tell("The password is changed.");
    },
  };

  function once(text, secret) {
    show(made, text, el("code", {}, secret));
  }

  async function perform(work, done = () => {}) {
    try {
      await work();
      done();
      again();
      if (document.activeElement === document.body) main.focus(); // its row is gone
    } catch (error) {
      tell(error.message);
    }
  }

  main.addEventListener("click", (event) => {
    const { act, id } = event.target.dataset;
    if (act) perform(() => ACTIONS[act](id, event.target.closest("tr")));
  });
  main.addEventListener("submit", (event) => {
    event.preventDefault();
    const form = event.target;
    perform(() => MADE[form.dataset.make](Object.fromEntries(new FormData(form)), form), () => form.reset());
  });

  function draw() {
    document.title = `${me.name} · tuner`;
    document.getElementById("user").textContent = `${me.name}, ${me.role}`;
    forms.password.elements.user.value = me.name; // for what keeps passwords
    for (const option of forms.token.elements.role.options) {
      option.disabled = ROLES.indexOf(option.value) > ROLES.indexOf(me.role);
      if (first) option.defaultSelected = option.selected = option.value === me.role;
    }
    first = false;
    show(
      main,
      made,
      el("h2", { "data-key": "tokens" }, "Tokens"),
      el("p", { class: "soft", "data-key": "of tokens" }, "With them programs and the command line identify themselves; `tuner login` makes one by itself."),
      table("tokens", [["token", "number"], ["name"], ["role"], ["expires"], ["last used"], ["actions"]], found.tokens.map(tokenOf), { "data-key": "list of tokens" }),
      forms.token,
      SUBMITS.includes(me.role) && [
        el("h2", { "data-key": "webhooks" }, "Webhooks"),
        table("webhooks", [["webhook", "number"], ["address"], ["events"], ["actions"]], found.webhooks.map(webhookOf), { "data-key": "list of webhooks" }),
        forms.webhook,
      ],
      me.role === "admin" && [
        el("h2", { "data-key": "users" }, "Users"),
        el("p", { class: "soft", "data-key": "of users" }, "A study's code runs as the server's own user: whoever may submit is trusted with everything that the server can read and write."),
        table("users", [["user"], ["role"], ["weight"], ["devices at once"], ["device-hours a week"], ["actions"]], found.users.map(userOf), { "data-key": "list of users" }),
        forms.user,
      ],
      el("h2", { "data-key": "password" }, "Password"),
      forms.password,
    );
  }

  return {
    studies: [],
    async load() {
      me = await get("users/me");
      const asked = ["tokens", SUBMITS.includes(me.role) && "webhooks", me.role === "admin" && "users"];
      const [tokens, webhooks, users] = await Promise.all(asked.map(async (name) => (name ? (await get(path([name], MOST))).items : [])));
      found = { tokens, webhooks, users };
      draw();
    },
  };
}

function formsOf() {
  const form = (name, ...parts) => el("form", { "data-make": name, class: "toolbar", "data-keep": "" }, parts);
  const field = (label, attributes) => el("label", {}, `${label} `, el("input", attributes));
  const roles = () => el("label", {}, "Role ", el("select", { name: "role" }, ROLES.map((role) => el("option", { value: role, selected: role === "submitter" }, role))));
  const secret = (label, name, kind) => field(label, { name, type: "password", autocomplete: kind, required: true });
  return {
    token: form("token", field("Name", { name: "name", maxlength: 100, placeholder: "what it is for" }), roles(), field("Days", { name: "days", type: "number", min: 1, max: 366, value: 30 }), el("button", {}, "Create a token")),
    webhook: form("webhook", field("Address", { name: "url", type: "url", pattern: "https://.*", size: 40, required: true, placeholder: "https://" }), EVENTS.map((event) => field(event.replace("_", " "), { name: "event", type: "checkbox", value: event, checked: true })), el("button", {}, "Add a webhook")),
    user: form("user", field("Name", { name: "name", required: true }), roles(), el("button", {}, "Add a user")),
    password: form("password", el("input", { name: "user", autocomplete: "username", hidden: true }), secret("Present one", "old_password", "current-password"), secret("New one", "new_password", "new-password"), el("button", {}, "Change it")),
  };
}

const button = (act, id, text, label) => el("button", { type: "button", "data-act": act, "data-id": id, "aria-label": `${label}: ${text}` }, text);

function tokenOf({ id, name, role, expires, used }) {
  return el("tr", { "data-key": id }, el("td", { class: "number" }, String(id)), el("td", { class: "name" }, name), el("td", {}, role), el("td", {}, moment(expires)), el("td", {}, moment(used)), el("td", {}, button("revoke", id, "Revoke", `token ${id}`)));
}

function webhookOf({ id, url, events }) {
  return el("tr", { "data-key": id }, el("td", { class: "number" }, String(id)), el("td", { class: "reason" }, url), el("td", { class: "reason" }, events.join(", ").replaceAll("_", " ")), el("td", {}, button("test", id, "Test", `webhook ${id}`), " ", button("unhook", id, "Remove", `webhook ${id}`)));
}

function userOf({ name, role, disabled, weight, most_devices, most_hours }) {
  const number = (key, value, label, least) => el("td", { class: "setting", "data-name": label }, el("input", { type: "number", name: key, min: least, step: "any", value: value === null ? "" : value, placeholder: "no cap", "aria-label": `${name}: ${label}` }));
  return el(
    "tr",
    { "data-key": JSON.stringify([name, role, disabled, weight, most_devices, most_hours]), "data-user": name }, // drawn anew if it has changed
    el("td", { class: "name" }, name),
    el("td", {}, el("select", { name: "role", "aria-label": `${name}: role` }, ROLES.map((each) => el("option", { value: each, selected: each === role }, each))), disabled && " removed"),
    number("weight", weight, "weight", 0.01),
    number("most_devices", most_devices, "devices at once", 0),
    number("most_hours", most_hours, "device-hours a week", 0),
    el("td", {}, disabled ? button("back", name, "Take back", name) : button("save", name, "Save", name), " ", !disabled && [button("link", name, "New link", name), " ", button("remove", name, "Remove", name)]),
  );
}

// What was typed or chosen, and nothing else: others may have changed the rest meanwhile.
function changesOf(row) {
  const typed = [...row.querySelectorAll("input")].filter((field) => field.value !== field.defaultValue);
  const changes = typed.map((field) => [field.name, field.value === "" ? null : Number(field.value)]);
  const role = row.querySelector("option:checked");
  return Object.fromEntries(role.defaultSelected ? changes : [...changes, ["role", role.value]]);
}

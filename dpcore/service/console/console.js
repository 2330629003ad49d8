"use strict"

// The token stays in this variable: it is written to no storage, cookie or address.
let token = ""
let offered = null
let left = 0

const $ = id => document.getElementById(id)
const number = value => value === null ? "none" : Math.abs(value) >= 1000
  ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4)))
const amount = value => value === 0 ? "0" : value < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(3)))

const send = async (path, body) => {
  const headers = {Authorization: `Bearer ${token}`}
  if (body) { headers["Content-Type"] = "application/json" }
  let answer
  try {
    answer = await fetch(path, {method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body)})
  } catch { throw {reason: "The service does not answer. Is it still running?"} }
  const told = await answer.json()
  if (answer.status === 401) { throw {reason: "This token is unknown or was replaced. Ask the steward for a new one."} }
  if (!answer.ok) { throw told.error }
  return told
}

const element = (name, text, kind) => {
  const made = document.createElement(name)
  if (text !== undefined) { made.textContent = text }
  if (kind) { made.className = kind }
  return made
}

const shape = (name, attributes) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name)
  for (const [key, value] of Object.entries(attributes)) { made.setAttribute(key, value) }
  return made
}

const problem = error => {
  const where = error.line ? `Line ${error.line}, column ${error.column}. ` : ""
  const reason = String(error.reason ?? "Something went wrong in this page; reload it.")
  const plain = reason.replace(/^line \d+, column \d+: /, "")
  $("problem").replaceChildren(element("strong", where || "Not answered. "), plain.charAt(0).toUpperCase() + plain.slice(1) + (/[.?!]$/.test(plain) ? "" : "."))
  if (error.line) { select(error) }
}

// Put the cursor where the mistake is.
const select = ({line, column}) => {
  const field = $("query")
  const before = field.value.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0)
  field.focus()
  field.setSelectionRange(before + column - 1, before + column - 1)
}

const showBudget = async () => {
  const told = await send("budget")
  left = Math.min(told.remaining, told.session.remaining)
  $("who").textContent = `${told.analyst}, epsilon ${amount(told.epsilon.spent)} of ${amount(told.epsilon.cap)} spent`
  $("rest").textContent = `epsilon ${amount(Math.min(told.epsilon.remaining, told.session.epsilon.remaining))} left`
  $("bar").value = told.cap ? told.spent / told.cap : 1
  $("left").hidden = false
}

// What a column may hold, in words: its categories, or its limits. The upper limit of whole numbers and days is the first value above.
const holds = ({type, categories, constraints: limits = {}}) => {
  const listed = categories ?? limits.enum
  if (listed) { return listed.join(", ") }
  const end = limits.maximum ?? limits.exclusiveMaximum
  const ends = limits.minimum === undefined ? "" : `, ${limits.minimum} ${limits.maximum === undefined ? "to below" : "to"} ${end}`
  return type + ends
}

const showColumns = async () => {
  const {columns} = await send("columns")
  const head = element("tr")
  head.append(element("th", "Column"), element("th", "Values"))
  const rows = columns.map(each => {
    const row = element("tr"), name = element("td"), values = element("td")
    name.append(element("code", each.sql))
    values.append(holds(each) + (each.constraints?.required ? "" : "; may be null"))
    const said = [each.description, each.unit && `Measured in ${each.unit}.`].filter(Boolean).join(" ")
    if (said) { values.append(element("p", said, "hint")) }
    row.append(name, values)
    return row
  })
  $("columns").replaceChildren(head, ...rows)
}

const showPurchases = async () => {
  const {answers} = await send("answers")
  $("bought").hidden = answers.length === 0
  const head = element("tr")
  head.append(element("th", "Question"), element("th", "Epsilon", "number"))
  const rows = answers.reverse().map(each => {
    const row = element("tr"), cell = element("td")
    cell.append(element("code", each.query))
    row.append(cell, element("td", amount(each.epsilon), "number"))
    return row
  })
  $("purchases").replaceChildren(head, ...rows)
}

const asked = () => {
  const within = $("within").value.trim()
  return {query: $("query").value, within: within !== "" && isFinite(within) ? Number(within) : within, level: Number($("level").value)}
}

const level = told => `${Number((100 * told.level).toPrecision(4))} %`

const showPrice = price => {
  const free = price.free
  $("cost").textContent = price.stored ? "Free: this question was bought before."
    : free ? "Free: the model knows this accurately enough."
    : `Costs epsilon ${amount(price.epsilon)} (${price.epsilon_after === null ? "more than remains" : `remaining afterwards: ${amount(price.epsilon_after)} of ${amount(price.epsilon_of)}`}).`
  $("cost").classList.toggle("pays", !free)
  $("accuracy").textContent = `Expected interval: ${number(price.half_width)} to either side at most, at level ${level(price)}.`
  $("ask").textContent = free ? "Get the answer" : `Pay epsilon ${amount(price.epsilon)} and get the answer`
  $("ask").disabled = !free && price.cost > left
  if ($("ask").disabled) { $("ask").textContent = "You have too little left: ask within more" }
  $("offer").hidden = false
}

const bar = (row, name, lowest, highest) => {
  const width = 200, height = 24, scale = value => highest > lowest ? 4 + (width - 8) * (value - lowest) / (highest - lowest) : width / 2
  const [low, high, value] = [row[`${name}_low`], row[`${name}_high`], row[name]].map(scale)
  const drawn = shape("svg", {viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true"})
  drawn.append(
    shape("line", {class: "scale", x1: 0, x2: width, y1: height / 2, y2: height / 2}),
    shape("rect", {class: "bar", x: low, width: Math.max(high - low, 1), y: 7, height: height - 14}),
    shape("rect", {class: "mark", x: value - 1.5, width: 3, y: 2, height: height - 4}))
  return drawn
}

const showAnswer = told => {
  const numbers = told.columns.filter(name => told.columns.includes(`${name}_low`) && told.columns.includes(`${name}_basis`))
  const ends = new Set(numbers.flatMap(name => [`${name}_low`, `${name}_high`, `${name}_basis`]))
  const columns = told.columns.filter(name => !ends.has(name))
  const known = name => told.rows.flatMap(row => [row[`${name}_low`], row[`${name}_high`], row[name]]).filter(value => typeof value === "number")
  const head = element("tr")
  for (const name of columns) {
    head.append(element("th", name, numbers.includes(name) ? "number" : ""))
    if (numbers.includes(name)) { head.append(element("th", `${level(told.price)} interval`), element("th", "")) }
  }
  head.querySelectorAll("th:empty").forEach(each => each.replaceWith(element("td")))
  const rows = told.rows.map(row => {
    const made = element("tr")
    for (const name of columns) {
      const value = row[name]
      if (!numbers.includes(name)) { made.append(element("td", value === null ? "null" : String(value))); continue }
      const plain = typeof value === "number"
      made.append(
        element("td", plain ? number(value) : value ?? "none", "number"),
        element("td", plain ? `${number(row[`${name}_low`])} to ${number(row[`${name}_high`])}` : `${row[`${name}_low`] ?? ""} to ${row[`${name}_high`] ?? ""}`, "interval"))
      const cell = element("td")
      if (plain) { cell.append(bar(row, name, Math.min(0, ...known(name)), Math.max(...known(name)))) }
      made.append(cell)
    }
    return made
  })
  $("rows").replaceChildren(head, ...rows)
  const price = told.price
  $("paid").textContent = price.stored ? "Free: bought before." : price.free ? "Free." : `Paid epsilon ${amount(price.epsilon)}.`
  $("paid").classList.toggle("pays", !price.free)
  $("answer").hidden = false
}

// One request at a time: its button waits, and problems are shown in one place.
const busy = async (button, work) => {
  if (button.dataset.busy) { return }
  button.dataset.busy = "yes"
  button.setAttribute("aria-busy", "true")
  $("problem").replaceChildren()
  try { await work() } catch (error) { problem(error) } finally {
    delete button.dataset.busy
    button.removeAttribute("aria-busy")
  }
}

$("enter").addEventListener("submit", event => {
  event.preventDefault()
  busy($("enter").querySelector("button"), async () => {
    token = $("token").value.trim()
    await showBudget()
    $("token").value = ""
    $("enter").hidden = true
    $("question").hidden = false
    $("query").focus()
    await Promise.all([showPurchases(), showColumns()])
  })
})

const forget = () => { offered = null; $("offer").hidden = true; $("answer").hidden = true }
for (const id of ["query", "within", "level"]) { $(id).addEventListener("input", forget) }

$("question").addEventListener("submit", event => {
  event.preventDefault()
  busy($("look"), async () => {
    forget()
    const question = asked()
    const price = await send("price", question)
    await showBudget()
    if (JSON.stringify(asked()) !== JSON.stringify(question)) { return } // it was changed meanwhile: this price is of another question
    offered = {...question, at_most: price.cost}
    showPrice(price)
    $("ask").focus()
  })
})

$("query").addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { $("question").requestSubmit() }
})

// While an answer is being bought, its question stays as it is.
const hold = held => {
  for (const id of ["query", "within"]) { $(id).readOnly = held }
  $("level").disabled = held
}

$("ask").addEventListener("click", () => busy($("ask"), async () => {
  if (!offered) { return }
  hold(true)
  try { showAnswer(await send("ask", offered)) } finally { hold(false) }
  $("offer").hidden = true
  $("answer-title").focus()
  await showBudget()
  await showPurchases()
}))

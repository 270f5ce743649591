// Draws the report S of a true answer D where the person is, from the same exact integers as fairpremium in Python.
//
// One integer u, uniform in 0 ... N - 1, decides a report. It comes from 32-bit words of crypto.getRandomValues: a word
// w >= 2^32 - (2^32 mod N) is thrown away, the first other one gives u = w mod N. All numbers are integers up to 2^32,
// which JavaScript computes exactly. Messages never repeat an answer.

const WORD = 2 ** 32;
const MOST_TRIES = 1000; // at least half of all words are accepted: this many refusals in a row do not happen
const MOST_LABELS = 4096;
const COMMON_FIELDS = ["scheme", "groups", "reports", "epsilon", "sha256"];

/**
 * Read the descriptor of a channel, as `Channel.descriptor()` gives it in Python.
 *
 * Whatever does not describe a channel that protects is refused: an unknown scheme, a missing or further field, weights
 * without a common total, a report that rules a group out, an epsilon that the integers do not give. The field sha256
 * is not compared: it finds damage, which the connection already does.
 *
 * @param {object} descriptor
 * @returns {{groups: Array, reports: Array, keep: ?{a: number, total: number}, worstRatio: [bigint, bigint],
 *   draw: function(*, Iterable<number>): *, privatize: function(*): *}}
 *   `worstRatio` is e^epsilon as numerator and denominator. `keep` is the chance of the truth, a / total, for
 *   randomized response, else null.
 */
export function readChannel(descriptor) {
  const { groups, reports, components, worstRatio, choose } = read(descriptor);
  const draw = (answer, words) => {
    const group = findLabel(groups, answer);
    const next = words[Symbol.iterator]();
    return copy(reports[choose(group, components.map((c) => uniform(c.total, next)))]);
  };
  return Object.freeze({
    groups: copy(groups),
    reports: copy(reports),
    keep: components.length === 1 && components[0].a ? { a: components[0].a, total: components[0].total } : null,
    worstRatio,
    draw,
    privatize: (answer) => draw(answer, systemWords()),
  });
}

/**
 * Return the report that given random words decide: a pure function, for conformance tests.
 *
 * @param {object} descriptor
 * @param {string|number|boolean|Array} answer - one of the groups
 * @param {Iterable<number>} words - integers below 2^32; each component of a channel takes words until it accepts one
 * @returns {string|number|boolean|Array} one of the reports
 */
export function draw(descriptor, answer, words) {
  return readChannel(descriptor).draw(answer, words);
}

/**
 * Draw the report of an answer with fresh randomness of the system. Every call draws anew: a person who sends two
 * reports has told more than one report tells, so send one and keep it until it has arrived.
 *
 * @param {object} descriptor
 * @param {string|number|boolean|Array} answer - one of the groups
 * @returns {string|number|boolean|Array} one of the reports
 */
export function privatize(descriptor, answer) {
  return readChannel(descriptor).privatize(answer);
}

/**
 * Return, in whole per cent and rounded up, the most that an observer can believe after the report who believed
 * `percent` before it: p r / (p r + 1 - p) with r = e^epsilon.
 *
 * @param {object} descriptor
 * @param {number} percent - a whole number between 0 and 100
 * @returns {number}
 */
export function largestBelief(descriptor, percent) {
  if (!Number.isInteger(percent) || percent < 0 || percent > 100) {
    throw new RangeError("Got another percent, but expected a whole number between 0 and 100.");
  }
  const [p, q] = readChannel(descriptor).worstRatio;
  const yes = BigInt(percent) * p;
  const all = yes + BigInt(100 - percent) * q;
  return Number((100n * yes + all - 1n) / all);
}

// --- randomness ---

function* systemWords() {
  const source = globalThis.crypto;
  if (typeof source?.getRandomValues !== "function") {
    throw new Error("This browser has no secure randomness (crypto.getRandomValues); no report was drawn.");
  }
  for (;;) yield source.getRandomValues(new Uint32Array(1))[0];
}

function uniform(total, words) {
  const limit = WORD - (WORD % total);
  for (let tries = 0; tries < MOST_TRIES; tries++) {
    const { value, done } = words.next();
    if (done) throw new RangeError("The words are used up before the report is decided; no report was drawn.");
    if (!Number.isInteger(value) || value < 0 || value >= WORD) {
      throw new RangeError("Got another word, but expected an integer from 0 to 2^32 - 1; no report was drawn.");
    }
    if (value < limit) return value % total;
  }
  throw new Error("The source of randomness repeats itself; no report was drawn.");
}

// --- descriptors ---

function read(descriptor) {
  if (typeof descriptor !== "object" || descriptor === null || Array.isArray(descriptor)) {
    refuse("it is not an object");
  }
  const channel = readScheme(descriptor);
  const worstRatio = channel.components.reduce(([p, q], c) => [p * c.worstRatio[0], q * c.worstRatio[1]], [1n, 1n]);
  const epsilon = logarithm(worstRatio[0]) - logarithm(worstRatio[1]);
  const stated = descriptor.epsilon;
  if (typeof stated !== "number" || !(Math.abs(stated - epsilon) <= 1e-9 * Math.max(1, epsilon))) {
    refuse("its epsilon is not that of its integers");
  }
  return { ...channel, worstRatio };
}

function readScheme(descriptor) {
  switch (descriptor.scheme) {
    case "randomized-response/1":
      checkFields(descriptor, ["a", "b"]);
      return readRandomizedResponse(descriptor);
    case "channel/1":
      checkFields(descriptor, ["weights"]);
      return readWeights(descriptor);
    case "product/1":
      checkFields(descriptor, ["components"]);
      return readProduct(descriptor);
    default:
      return refuse(
        "its scheme is not one of randomized-response/1, channel/1, product/1 (subset selection is not known here)",
      );
  }
}

function readRandomizedResponse({ groups, reports, a, b }) {
  const K = checkLabels(groups, "groups");
  if (!sameLabel(groups, reports)) refuse("its reports are not its groups");
  if (![a, b].every(Number.isSafeInteger) || !(a > b && b >= 1)) refuse("a > b >= 1 does not hold");
  const total = a + (K - 1) * b;
  if (total > WORD || divisor(a, b) !== 1) refuse("a and b have a common divisor, or N is above 2^32");
  const pick = (truth, u) => {
    if (u < a) return truth;
    const other = Math.floor((u - a) / b);
    return other + (other >= truth ? 1 : 0);
  };
  return single(groups, reports, { total, pick, a, worstRatio: [BigInt(a), BigInt(b)] });
}

function readWeights({ groups, reports, weights }) {
  const K = checkLabels(groups, "groups");
  const M = checkLabels(reports, "reports");
  if (M < K || !Array.isArray(weights) || weights.length !== M) refuse("its weights are not (reports, groups)");
  const rows = copy(weights);
  for (const row of rows) {
    if (!Array.isArray(row) || row.length !== K) refuse("its weights are not (reports, groups)");
    if (!row.every((w) => Number.isSafeInteger(w) && w > 0 && w <= WORD)) {
      refuse("its weights are not all positive integers, and a report of weight 0 protects nobody");
    }
  }
  const totals = groups.map((_, d) => rows.reduce((sum, row) => sum + row[d], 0));
  const total = totals[0];
  if (total > WORD || totals.some((t) => t !== total)) refuse("its columns have no common total up to 2^32");
  if (rows.flat().reduce(divisor) !== 1) refuse("its weights have a common divisor");
  const pick = (truth, u) => {
    let end = 0;
    return rows.findIndex((row) => u < (end += row[truth]));
  };
  const ratios = rows.map((row) => [BigInt(Math.max(...row)), BigInt(Math.min(...row))]);
  const worstRatio = ratios.reduce((worst, ratio) => (ratio[0] * worst[1] > worst[0] * ratio[1] ? ratio : worst));
  return single(groups, reports, { total, pick, worstRatio });
}

function readProduct({ groups, reports, components }) {
  if (!Array.isArray(components) || components.length < 2) refuse("a product has at least two components");
  if (components.some((c) => c?.scheme === "product/1")) refuse("a component is itself a product");
  const parts = components.map(read);
  if (!sameLabel(groups, tuples(parts.map((p) => p.groups)))) refuse("its groups are not those of its components");
  if (!sameLabel(reports, tuples(parts.map((p) => p.reports)))) refuse("its reports are not those of its components");
  checkLabels(groups, "groups");
  checkLabels(reports, "reports");
  const choose = (group, u) => {
    const positions = [];
    for (const part of [...parts].reverse()) { // the first attribute varies slowest
      positions.unshift(group % part.groups.length);
      group = Math.floor(group / part.groups.length);
    }
    return parts.reduce((flat, part, j) => flat * part.reports.length + part.choose(positions[j], [u[j]]), 0);
  };
  return { groups: copy(groups), reports: copy(reports), components: parts.flatMap((p) => p.components), choose };
}

function single(groups, reports, component) {
  const choose = (group, [u]) => component.pick(group, u);
  return { groups: copy(groups), reports: copy(reports), components: [component], choose };
}

function tuples(lists) {
  if (lists.reduce((n, list) => n * list.length, 1) > MOST_LABELS) refuse("it has too many labels");
  return lists.reduce((rows, list) => rows.flatMap((row) => list.map((label) => row.concat(label))), [[]]);
}

function checkFields(descriptor, own) {
  const expected = [...COMMON_FIELDS, ...own].sort();
  if (JSON.stringify(Object.keys(descriptor).sort()) !== JSON.stringify(expected)) {
    refuse(`its fields are not ${expected.join(", ")}`);
  }
}

function refuse(reason) {
  throw new TypeError(`The descriptor does not describe a channel: ${reason}. No report was drawn.`);
}

function divisor(a, b) {
  while (b) [a, b] = [b, a % b];
  return a;
}

function logarithm(n) { // of a positive bigint of any size
  const digits = n.toString();
  return Math.log(Number(digits.slice(0, 17))) + Math.max(digits.length - 17, 0) * Math.LN10;
}

// --- labels: strings, numbers, booleans, or tuples of these, which JSON has as arrays ---

function checkLabels(labels, name) {
  if (!Array.isArray(labels) || labels.length < 2 || labels.length > MOST_LABELS || !labels.every(isLabel)) {
    refuse(`its ${name} are not two or more labels`);
  }
  // true counts as 1, as in Python
  const keys = labels.map((label) => JSON.stringify(label, (_, v) => (typeof v === "boolean" ? Number(v) : v)));
  if (new Set(keys).size !== keys.length) refuse(`its ${name} are not distinct`);
  return labels.length;
}

function isLabel(label) {
  if (Array.isArray(label)) return label.length > 0 && label.every(isLabel);
  return typeof label === "string" || typeof label === "boolean" || Number.isFinite(label);
}

function sameLabel(x, y) {
  if (!Array.isArray(x) || !Array.isArray(y)) return x === y;
  return x.length === y.length && x.every((value, i) => sameLabel(value, y[i]));
}

function findLabel(groups, answer) {
  const group = groups.findIndex((label) => sameLabel(label, answer));
  if (group < 0) throw new RangeError("The answer is not one of the groups; no report was drawn.");
  return group;
}

function copy(label) {
  return Array.isArray(label) ? label.map(copy) : label;
}

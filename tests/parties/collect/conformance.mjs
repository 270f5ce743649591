// Runs report.js on cases that Python made. As a program: node conformance.mjs report.js < cases.json > answers.json
// A case is {descriptor, groups, words, width}: positions of groups (16 bits each) and `width` words of 32 bits for
// each of them, in base64. The answer is the positions of the reports. In a browser the functions are called directly.

export function runCases(report, cases) {
  return cases.map(({ descriptor, groups, words, width }) => {
    const channel = report.readChannel(descriptor);
    const positions = new Map(channel.reports.map((label, s) => [JSON.stringify(label), s]));
    const allWords = new Uint32Array(bytesOf(words).buffer);
    const answers = Uint16Array.from(new Uint16Array(bytesOf(groups).buffer), (group, i) =>
      positions.get(JSON.stringify(channel.draw(channel.groups[group], allWords.subarray(i * width, (i + 1) * width)))));
    return textOf(new Uint8Array(answers.buffer));
  });
}

// The enumeration proof: every list of integers that the components may get is tried, and the reports are counted.
// The answer has one row per group, one count per report.
export function enumerate(report, descriptors) {
  return descriptors.map((descriptor) => enumerateOne(report, descriptor));
}

function enumerateOne(report, descriptor) {
  const channel = report.readChannel(descriptor);
  const totals = (descriptor.components ?? [descriptor]).map(totalOf);
  return channel.groups.map((group) => {
    const counts = new Map(channel.reports.map((label) => [JSON.stringify(label), 0]));
    for (const words of lists(totals)) {
      const drawn = JSON.stringify(channel.draw(group, words));
      counts.set(drawn, counts.get(drawn) + 1);
    }
    return [...counts.values()];
  });
}

// Counts of reports that are drawn with the randomness of the system.
export function countDraws(report, descriptor, n) {
  const channel = report.readChannel(descriptor);
  return channel.groups.map((group) => {
    const counts = new Map(channel.reports.map((label) => [JSON.stringify(label), 0]));
    for (let i = 0; i < n; i++) {
      const drawn = JSON.stringify(channel.privatize(group));
      counts.set(drawn, counts.get(drawn) + 1);
    }
    return [...counts.values()];
  });
}

// What calls answer: a value, or the error's name and message.
export function attempt(report, calls) {
  return calls.map(([call, ...args]) => {
    try {
      const value = report[call](...args);
      return { value: call === "readChannel" ? null : value };
    } catch (error) {
      return { error: error.name, message: error.message };
    }
  });
}

function totalOf({ a, b, groups, weights }) {
  return weights ? weights.reduce((sum, row) => sum + row[0], 0) : a + (groups.length - 1) * b;
}

function* lists([first, ...others]) {
  for (let u = 0; u < first; u++) {
    if (others.length === 0) yield [u];
    else for (const rest of lists(others)) yield [u, ...rest];
  }
}

function bytesOf(text) {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

function textOf(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(text);
}

if (globalThis.process?.argv[1]?.endsWith("conformance.mjs")) {
  const { readFileSync } = await import("node:fs");
  const { pathToFileURL } = await import("node:url");
  const report = await import(pathToFileURL(process.argv[2]).href);
  const [name, ...args] = JSON.parse(readFileSync(0, "utf8"));
  const work = { runCases, enumerate, countDraws, attempt }[name];
  process.stdout.write(JSON.stringify(work(report, ...args)));
}

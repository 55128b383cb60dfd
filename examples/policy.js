// The probabilities of a policy that `understudy learn` wrote, without Python.
//
//     node examples/policy.js policy.json '{"city": "Rome", "age": 30}'
//     node examples/policy.js policy.json '{"age": 30}' '{"production": {"a": 0.9, "b": 0.1}}'
//
// docs/policy-json.md describes the file. A policy without contexts needs the entropy or exponential
// weights below, a ridge policy the encoder and `ridge`; all of it together plays the mixture.
"use strict";

const LEAST_SHARE = 1e-3; // of an unknown policy: a smaller one is left out
const needed = (name, share) => `pass the probabilities of ${name}: it has the share ${share}`;

const sum = (values) => values.reduce((total, value) => total + value, 0);
const normalized = (weights, total = sum(weights)) => weights.map((weight) => weight / total);
const softmax = (scores, largest = Math.max(...scores)) =>
  normalized(scores.map((score) => Math.exp(score - largest)));
const mix = (shares, rows) => rows[0].map((_, a) => sum(rows.map((row, m) => shares[m] * row[a])));
const actionsOf = ({ behavior }) => behavior.n_actions || behavior.values.length;
const part = (array, size, i) => array.values.slice(i * size, (i + 1) * size); // block i of an array

// Contexts: the constant 1, then the features of each column.

function encode(columns, context) {
  const absent = columns.map(({ name }) => name).filter((name) => !(name in context));
  if (absent.length) throw new Error(`the context has no ${absent}; null is a missing value`);
  return [1].concat(...columns.map((column) => encodeColumn(column, context[column.name])));
}

function encodeColumn(column, value) {
  const known = value !== null && value !== undefined && value !== "" && !Number.isNaN(value);
  if (column.kind === "number") {
    const number = known ? Number(value) : NaN;
    const standard = Math.max(-5, Math.min(5, (number - column.mean) / column.scale));
    const features = column.scale > 0 ? [Number.isFinite(number) ? standard : 0] : [];
    return column.missing ? [...features, Number.isFinite(number) ? 0 : 1] : features;
  }
  const features = column.categories.map((category) => (String(value) === category ? 1 : 0));
  if (column.rare.length) features.push(known && !sum(features) ? 1 : 0);
  return column.missing ? [...features, known ? 0 : 1] : known ? features : features.fill(0);
}

// Learners without contexts.

function lastChange(t) { // a rate that falls with time moves in rounds that are 5 % apart
  let round = 1, next = 2;
  while (next <= t) [round, next] = [next, Math.max(next + 1, Math.ceil((next * 105) / 100))];
  return round;
}

function entropyWeights(learner, state) { // of every action, and of production if it is an expert
  const [levels, n] = state.scores.shape;
  const scale = learner.decaying ? Math.sqrt(lastChange(state.rounds + 1)) : 1;
  const grid = learner.grid || learner.behavior.kind === "Logged";
  const alike = grid && !learner.action_prior && !learner.production ? n : 1;
  const weight = (level, a) => {
    const own = grid ? level : a, place = level * n + a, eta = learner.rates.values[own] / scale;
    const lead = state.scores.values[place] - state.level + state.residues.values[place];
    const prior = learner.prior.values[own] / alike;
    return prior > 0 ? Math.exp(Math.log(prior) + eta * lead) : 0;
  };
  const every = [...Array(levels).keys()];
  return normalized([...Array(n).keys()].map((a) => sum(every.map((level) => weight(level, a)))));
}

function entropyPolicy(learner, state, outside) {
  const weights = entropyWeights(learner, state);
  if (!learner.production) return weights;
  const share = weights.pop();
  const production = learner.behavior.values || outside.production;
  if (production) return weights.map((weight, a) => weight + share * production[a]);
  if (share > LEAST_SHARE) throw new Error(needed("production", share));
  return normalized(weights);
}

const rateOf = (eta, t) => (typeof eta === "number" ? eta : eta.scale / Math.sqrt(lastChange(t)));

function exponentialPolicy(learner, state) {
  const eta = rateOf(learner.eta, state.rounds + 1), { scores, residues, reference } = state;
  return softmax(scores.values.map((s, a) => eta * (s - reference + residues.values[a])));
}

function freshPolicy(learner) { // of a context that no row had
  const K = actionsOf(learner), grid = learner.grid || learner.behavior.kind === "Logged";
  const prior = learner.action_prior || (grid ? null : learner.prior);
  return prior ? prior.values : Array(K).fill(1 / K);
}

// Learners with contexts: a list of policies, one for each temperature of a regression.

function ridge(learner, state, x) {
  const p = x.length, center = learner.centered && state.rounds ? state.rewards / state.rounds : 0;
  const actions = [...Array(learner.n_actions).keys()];
  const estimates = actions.map((a) => {
    const u = part(state.by_reward, p, a), v = part(state.by_one, p, a);
    return sum(x.map((value, i) => value * (u[i] - center * v[i])));
  });
  const width = (a) => { // √(xᵀA⁻¹x), of the lower triangle of A⁻¹, row by row
    const triangle = part(state.inverse, (p * (p + 1)) / 2, a);
    let total = 0;
    for (let i = 0, k = 0; i < p; i++)
      for (let j = 0; j <= i; j++, k++) total += (i === j ? 1 : 2) * triangle[k] * x[i] * x[j];
    return Math.sqrt(Math.max(0, total));
  };
  return learner.temperatures.values.map((tau, k) => {
    const beta = learner.betas.values[k];
    return softmax(actions.map((a) => (estimates[a] - (beta > 0 ? beta * width(a) : 0)) / tau));
  });
}

function linProd(learner, state, x) {
  const p = x.length, eta = Math.min(0.5 / learner.kappa, rateOf(learner.eta, state.rounds + 1));
  const c = learner.curvature === undefined ? 1 : learner.curvature;
  const score = (_, a) => { // η (⟨Θ, x⟩ − c xᵀSx)
    const theta = part(state.theta, p, a);
    const image = x.map((_, i) => sum(part(state.squares, p, a * p + i).map((s, j) => s * x[j])));
    return eta * sum(x.map((value, i) => value * (theta[i] - c * image[i])));
  };
  return softmax(Array.from({ length: state.theta.shape[0] }, score));
}

function bounded(V, kappa, x) { // x · min(1, √(κ / max_a xᵀV_a⁻¹x)), by Cholesky's V = LLᵀ
  const p = x.length;
  const leverages = Array.from({ length: V.shape[0] }, (_, a) => {
    const L = part(V, p * p, a), y = [...x];
    for (let i = 0; i < p; i++) {
      for (let j = 0; j <= i; j++) {
        for (let k = 0; k < j; k++) L[i * p + j] -= L[i * p + k] * L[j * p + k];
        L[i * p + j] = i === j ? Math.sqrt(L[i * p + i]) : L[i * p + j] / L[j * p + j];
        if (j < i) y[i] -= L[i * p + j] * y[j];
      }
      y[i] /= L[i * p + i];
    }
    return sum(y.map((value) => value * value));
  });
  const factor = Math.sqrt(Math.min(1, kappa / Math.max(...leverages)));
  return x.map((value) => value * factor);
}

function mapped(map, x) {
  if (map.kind === "Leverage") return bounded(map.V, map.kappa, x);
  if (map.kind === "Cell") {
    const number = map.starts.values.reduce((cell, start, column) => {
      const size = map.sizes.values[column], label = x.slice(start, start + size).indexOf(1);
      return cell * (size + 1) + (label < 0 ? size : label);
    }, 0);
    return [number];
  }
  const D = map.phases.values.length; // RandomFourier
  const frequency = (i, d) => map.frequencies.values[i * D + d];
  return [1].concat(map.phases.values.map((phase, d) =>
    Math.sqrt(2 / D) * Math.cos(phase + sum(x.map((value, i) => value * frequency(i, d))))));
}

function mixture(learner, state, x, outside) {
  const shares = entropyWeights(learner.weights, state.weights), policies = [];
  let missing = 0;
  learner.experts.forEach((expert, m) => {
    if (expert.kind !== "Outside") return policies.push(...variants(expert, state.experts[m], x, {}));
    const known = expert.name === "production" && learner.behavior.values;
    const given = known || outside[expert.name], share = shares[policies.length];
    if (!given && share > LEAST_SHARE) throw new Error(needed(expert.name, share));
    if (!given) missing += share;
    policies.push(given || Array(actionsOf(learner)).fill(0));
  });
  return mix(shares, policies).map((p) => p / (1 - missing));
}

function variants(learner, state, x, outside) {
  switch (learner.kind) {
    case "CoverageAdaptive": return [entropyPolicy(learner, state, outside)];
    case "ExponentialWeights": return [exponentialPolicy(learner, state)];
    case "Ridge": return ridge(learner, state, x);
    case "LinProdCompact": return [linProd(learner, state, x)];
    case "Mapped": return variants(learner.learner, state, mapped(learner.map, x), outside);
    case "PerContext": {
      const own = state.states[x[0]];
      return own ? variants(learner.learner, own, null, outside) : [freshPolicy(learner.learner)];
    }
    case "Exp4": return [mixture(learner, state, x, outside)];
    default: throw new Error(`there is no rule for ${learner.kind} here`);
  }
}

// π(·|context) in the order of policy.actions. `outside` has the probabilities of policies that this
// one follows in part, in that order too: those of production, and of each expert column.
function probabilities(policy, context = {}, outside = {}) {
  const { learner, state, encoder } = policy;
  let x = encoder && encode(encoder.encoder.columns, context);
  if (learner.kind === "LinProdCompact") x = bounded(learner.features.V, learner.kappa, x);
  const found = variants(learner, state, x, outside);
  return mix(found.map(() => 1 / found.length), found);
}

module.exports = { probabilities };

if (require.main === module) {
  const [file, context = "{}", outside = "{}"] = process.argv.slice(2);
  const policy = JSON.parse(require("fs").readFileSync(file, "utf8"));
  const inOrder = ([name, by]) => [name, policy.actions.map((label) => by[label])];
  const given = Object.fromEntries(Object.entries(JSON.parse(outside)).map(inOrder));
  const found = probabilities(policy, JSON.parse(context), given);
  const byLabel = Object.fromEntries(policy.actions.map((label, a) => [label, found[a]]));
  console.log(JSON.stringify(byLabel));
}

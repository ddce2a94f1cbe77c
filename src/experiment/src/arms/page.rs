//! The part of docs/rewards.md on arms, and their scorers' options.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json};

use super::options::{
    Choice, Code, Exact, Format, Gsm8k, Http, Human, JsonSchema, Judged, Length, MathDapo, Model,
    Numeric, Python, Regex, SearchEm,
};
use crate::scorers::{SCORERS, ScorerName};

/// Each option of each scorer: what it does. Defaults come from the types; a test holds the names together.
#[rustfmt::skip]
pub(super) const OPTIONS: &[(ScorerName, &[(&str, &str)])] = &[
    (ScorerName::Exact, &[
        ("normalise_whitespace", "runs of white space count as one space, those at the ends as none"),
        ("ignore_case", "case does not count"),
    ]),
    (ScorerName::Numeric, &[
        ("only", "an answer with two numbers is wrong; otherwise the last one counts"),
        ("absolute_tolerance", "how far the answer may be from the truth"),
        ("relative_tolerance", "the same as a part of the truth"),
    ]),
    (ScorerName::Gsm8k, &[
        ("method", "`strict`, or `flexible`: the last number as it is written"),
        ("format_score", "score of a wrong answer in the right form"),
    ]),
    (ScorerName::MathDapo, &[("strict_box", "only a box counts")]),
    (ScorerName::SearchEm, &[
        ("format_score", "score of a wrong answer between its tags"),
        ("substring", "a truth inside the answer is enough"),
    ]),
    (ScorerName::Choice, &[
        ("choices", "how many letters there are, from A"),
        ("format_score", "score of a wrong letter"),
    ]),
    (ScorerName::Code, &[
        ("partial", "the score is the share of the tests that pass"),
        ("max_tests", "how many of a row's tests are run, from the first; null: all (to the first that fails), or ten with `partial`"),
        ("test_timeout_s", "seconds that a test gets"),
        ("memory_mb", "of all the processes of a test"),
        ("max_output_bytes", "a test that prints more fails"),
        ("python", "the interpreter; what is installed for it can be imported"),
    ]),
    (ScorerName::Regex, &[
        ("pattern", "in Rust's syntax: no look-around, no back references; required"),
        ("compare", "`found`, `absent`, or `truth`: what the group captured last is the truth"),
        ("group", "the group that is compared with the truth; 0 is the whole match"),
        ("whole", "the whole text must match"),
    ]),
    (ScorerName::JsonSchema, &[
        ("schema", "null: each row's ground truth is its schema"),
        ("format_score", "score of JSON that does not fit"),
    ]),
    (ScorerName::Format, &[
        ("tags", "each once, in this order: `[think, answer]` is `<think>…</think>…<answer>…</answer>`"),
        ("starts_with", "how the text starts"),
        ("ends_with", "how it ends"),
        ("contains", "texts that must be in it"),
        ("lacks", "texts that must not"),
        ("all", "0 unless all terms hold; otherwise the share of them"),
    ]),
    (ScorerName::Length, &[
        ("unit", "`characters`, `words` or `turns`"),
        ("min", "1 from here"),
        ("max", "to here; null: any"),
        ("over", "units outside over which the score falls to 0; 0: at once"),
    ]),
    (ScorerName::Python, &[
        ("path", "the file of the function; required"),
        ("name", "the function in it"),
        ("kwargs", "further arguments by name"),
        ("python", "the interpreter"),
        ("memory_mb", "address space of a process; null: no limit"),
        ("calls", "calls after which a process is replaced; null: never"),
    ]),
    (ScorerName::Model, &[
        ("path", "a directory with weights, a score head and a tokenizer; required"),
        ("max_tokens", "a longer dialogue has no score; null: what the model was made for"),
        ("dtype", "`fp32` or `bfloat16`; null: `bfloat16` on a GPU, else `fp32`"),
        ("batch", "dialogues of one pass, at most"),
        ("threads", "of its own, on a processor"),
    ]),
    (ScorerName::Http, &[
        ("url", "where the dialogue is sent; required"),
        ("key_env", "environment variable with a key that is sent as `Authorization: Bearer`"),
        ("headers", "further headers by name; secrets belong in `key_env`"),
        ("retries", "attempts after the first, for 408, 429, 5xx and lost connections"),
        ("max_response_bytes", "a longer answer is an error"),
    ]),
    (ScorerName::Judge, &[
        ("url", "of the chat completions of an OpenAI-compatible server; required"),
        ("model", "as the server calls it; required"),
        ("key_env", "environment variable with the key"),
        ("headers", "further headers by name; secrets belong in `key_env`"),
        ("system", "system prompt, where there is one"),
        ("template", "the judge's prompt; {{question}}, {{answer}}, {{truth}}, {{data_source}} are put in"),
        ("pattern", "its first group is the score in the judge's answer; the last match counts"),
        ("range", "what the judge may say, mapped to 0 and 1; outside is an error"),
        ("temperature", "of the judge"),
        ("max_tokens", "of its answer"),
        ("retries", "as of `http`"),
        ("max_response_bytes", "as of `http`"),
    ]),
    (ScorerName::Human, &[
        ("labels", "file of preferences (`.jsonl`, `.parquet`: prompt, chosen, rejected); may grow, and not be there yet; required"),
        ("every", "labels that are learned together"),
        ("words", "places that the words of an answer are hashed to; 0: words do not count"),
        ("scorers", "scorers whose scores count too: names, or `{scorer, options, sees}`"),
    ]),
];

/// The defaults of a scorer's options by name; empty: it has none.
pub(super) fn defaults(scorer: ScorerName) -> Map<String, Json> {
    let value = match scorer {
        ScorerName::Auto | ScorerName::Math | ScorerName::MathEqual => Ok(Json::Null),
        ScorerName::Exact => serde_json::to_value(Exact::default()),
        ScorerName::Numeric => serde_json::to_value(Numeric::default()),
        ScorerName::Gsm8k => serde_json::to_value(Gsm8k::default()),
        ScorerName::MathDapo => serde_json::to_value(MathDapo::default()),
        ScorerName::SearchEm => serde_json::to_value(SearchEm::default()),
        ScorerName::Choice => serde_json::to_value(Choice::default()),
        ScorerName::Code => serde_json::to_value(Code::default()),
        ScorerName::Regex => serde_json::to_value(Regex::default()),
        ScorerName::JsonSchema => serde_json::to_value(JsonSchema::default()),
        ScorerName::Format => serde_json::to_value(Format::default()),
        ScorerName::Length => serde_json::to_value(Length::default()),
        ScorerName::Python => serde_json::to_value(Python::default()),
        ScorerName::Model => serde_json::to_value(Model::default()),
        ScorerName::Http => serde_json::to_value(Http::default()),
        ScorerName::Judge => serde_json::to_value(Judged::default()),
        ScorerName::Human => serde_json::to_value(Human::default()),
    };
    match value.expect("options have string keys") {
        Json::Object(entries) => entries,
        _ => Map::new(),
    }
}

pub fn markdown() -> String {
    let mut text = ARMS.to_owned();
    text.push_str("\n## Options of the scorers\n\n| scorer | option | default | what it does |\n|---|---|---|---|\n");
    for row in &SCORERS {
        let defaults = defaults(row.id);
        let options = OPTIONS
            .iter()
            .find(|(id, _)| *id == row.id)
            .map_or(&[][..], |(_, options)| options);
        for (option, says) in options {
            let default = match &defaults[*option] {
                Json::String(long) if long.len() > 60 => {
                    "a prompt for scores of 1 to 10".to_owned()
                }
                value => format!("`{value}`").replace('|', "\\|"),
            };
            let _ = writeln!(text, "| `{}` | `{option}` | {default} | {says} |", row.name);
        }
    }
    text.push_str(PYTHON);
    text
}

const ARMS: &str = "
## Several judges: `reward.arms`

```yaml
reward:
  arms:
    - {name: right, scorer: math_equal}
    - {name: shape, scorer: format, weight: 0.2, options: {tags: [think, answer]}}
    - {name: ours, scorer: python, timeout: 2s, options: {path: reward.py}}
    - {name: watch, scorer: length, weight: 0, options: {max: 400}}
```

The reward is the sum of the arms' scores, each times its weight. An item may also be the name of a scorer alone.

| field | holds | default |
|---|---|---|
| `name` | how it is called in metrics and rollouts | the scorer's name |
| `scorer` | a scorer of the table above | |
| `weight` | factor of its score; 0: asked and recorded, and does not count; negative: a penalty | 1 |
| `timeout` | for an answer, from when the scorer is asked; waiting for a turn and starting a process do not count | 50 ms; of `code` 30 s |
| `default` | its score when it has not answered by then | 0 |
| `concurrency` | dialogues that it judges at once | 8 |
| `sees` | `model_text`: all the model wrote; `final_answer`: its last turn; `dialogue`: tool text too, which a model can learn to earn from | as the scorer does: `final_answer` for exact and numeric, else `model_text` |
| `options` | the scorer's own, below | |

- One that is late gives its default, and is marked (`timed_out`). What it says after all is dropped and counted (`late`); after ten
  times its time-out (at least 1 s) its work is cancelled.
- One that fails is missing: the other arms' weights are scaled up to its share, so that a failed judge neither rewards nor punishes.
  A dialogue whose arms are all missing has no score.
- Metrics: `reward/arm/NAME/score/*`, `/latency_ms/{p50,p99}`, `/wait_ms/max`, `/timed_out_frac`, `/missing_frac`, `/late`. Rollouts
  have each arm's score as `arm/NAME`, and further numbers of the scorer as `arm/NAME/...`; one arm's numbers also go by their own names.
- Every arm is tried on real rows before the first step; one that fails all of them ends the run there.
- With `reward.bandit.policy: fixed` one arm's score is the reward, with `ensemble` it is their mean, weighted by the
  bandit's own weights.
";

const PYTHON: &str = "
## A reward function in Python

A file written for verl works as it is: `reward.custom_reward_function.{path,name,reward_kwargs}`, or an arm with the scorer `python`.
The function is called `f(data_source=..., solution_str=..., ground_truth=..., extra_info=..., **kwargs)`, plain or async, and gives a
number or a dict with `score`; other numbers in it are recorded. `solution_str` has no tool text unless `sees: dialogue` says so (verl
passes it). Each process lives from call to call and is one of its own: a hang, a crash, an exit or a leak costs that one sample, and
what is printed is kept for the error. `reward.custom_reward_function` alone is one arm called `custom` with a time-out of 300 s.

## Programs

`code` takes the last block of Python in the answer (all of it where nothing is fenced) and runs each test in a process of its own, in the
sandbox that the tool `python` has: no network, no files, bounds of time, memory, output and processes. A program that forks, hangs or
prints without end fails that test and nothing else. On a machine that allows no sandbox nothing runs, and the rows cannot be judged.

| ground truth | what is asked |
|---|---|
| `{inputs: [...], outputs: [...]}` | each input on stdin; what is printed is compared |
| the same with `fn_name` | the function (or the method of `class Solution`) is called with each input: a list, or JSON, one argument a line |
| text with `assert`, or a list of such texts | runs after the program, and must come to its end; each text is a test |

A mapping may be JSON text, as in verl's data. Printed lines are compared without white space at their ends and without blank lines,
word by word; numbers that are not both whole may differ by 1e-5 of the value. APPS's rules, which verl has, also take 1000001 for 1000000
and words in any order; these do not. What a program must print is never where it runs. Assertions have to be: a program made to fool
them can.

## Reward models

```sh
lathe reward train experiments/reward-sums.yaml      # from preferences, or from scores
```

It learns with the keys of the supervised phase (`sft.*`): `train_files`, `val_files` (without them a tenth of the prompts is held out,
chosen by their words), `init_config`, `scorers`, `batch_size`, `total_training_steps`, `optim.*`, `output_dir`. The columns of the files decide what:

| columns | learned | loss |
|---|---|---|
| `prompt`, `chosen`, `rejected`, perhaps `margin` | Bradley-Terry | −ln σ(r(chosen) − r(rejected) − margin) |
| `prompt`, `response`, `score` | regression | (r − score)² |
| `prompt`, `response` and what the scorer needs (`data_source`, `ground_truth`) | distillation: the experiment's own reward gives the scores | (r − score)² |

Prompts and answers are text or lists of messages. The result is a directory in the Hugging Face layout (sequence classification with one
label, read at the last token), and `reward.json` of the run says how good it is on what was held out: accuracy with a standard error that
is robust to pairs of one prompt, log-loss, calibration (how far σ(Δ) is from how often it is right, by confidence), and what
the rule that the longer answer is better would reach. A reward model may be learned from further: `actor_rollout_ref.model.path`.

**Rules beside the model.** What an answer's sound cannot tell, such as whether a sum is right, a rule can: `sft.scorers: [numeric]` names
some, written as in `reward.arms`. Their weights are learned first, of pairs by the same loss on the differences of their scores, and
the model learns what they leave: −ln σ(Δr + w·Δs − margin). They lie beside the model in `scorers.json`, and whoever loads it adds w·s. Rows
need what the rules compare with (`ground_truth`). In the shipped experiment such a model tells 73.1 ± 1.6 % of 787 unseen pairs apart
(learned from the other 1629), where the rater's own taste tells 73.6 %; without the rule it is 62 ± 3 % of 262.

**On a sentence encoder.** `lathe model fetch minilm` brings all-MiniLM-L6-v2 (23 million parameters, 80 MB). With
`actor_rollout_ref.model.path: models/minilm` and no `init_config` every answer is embedded once, behind its prompt and as one text (the
last 256 word pieces), and a linear head is learned to its optimum: logistic regression on the differences of pairs, ridge regression on
scores. Its penalty is the best of eight in five-fold cross-validation over prompts, each a step of the run, and the last step is the
head that is kept; `reward.json` has `cross_validated` too, which is of all the pairs and so less by chance than a tenth of few.
`batch_size`, `total_training_steps` and `optim.*` are not read. A few hundred pairs take a minute. What comes out is the encoder with a `Dense` layer, as
sentence-transformers keeps it. It knows what a text is about and how it sounds, and cannot check a sum.

The scorer `model` has it judge: on a thread of its own, which takes as many dialogues at once as are waiting (`arm/NAME/together` in the
rollouts says how many). It reads the prompt and what the model wrote as one turn. `lathe check` does not load it; a path that is none ends
the run before its first step.

## Labels of people

`human` learns a linear Bradley-Terry model from a file of preferences that may grow while the run runs: over the (hashed) words of an
answer, its length, and the scores of `scorers`. Each time `every` further labels are there it learns them, apart from the answers that it
is asked about; a last line without its end waits. Before it learns a label it says what it expects: the share of the latest 200 that came
true is `reward/arm/NAME/agreement`, and `/labels` is how many there are. Until the first are learned its score is the arm's `default`.

## Judges over HTTP

`http` sends `{data_source, solution_str, ground_truth, extra_info, messages}` as JSON and reads a number, or an object with `score`.
`judge` asks a chat model behind an OpenAI-compatible endpoint and finds the score in what it says. Keys come from the environment
variable that is named, and are in no event, log or error. Give these arms a time-out that fits them.
";

//! The scorers by name, and which of them judges the rows of a `data_source`. One table: choices, help and docs/rewards.md read it.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// `reward.scorer`, or the scorer of an arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScorerName {
    /// By the row's `data_source`.
    Auto,
    Exact,
    Numeric,
    Gsm8k,
    Math,
    MathDapo,
    MathEqual,
    SearchEm,
    Choice,
    Code,
    Regex,
    JsonSchema,
    Format,
    Length,
    Python,
    Model,
    Http,
    Judge,
    Human,
}

#[derive(Debug, Clone, Copy)]
pub struct ScorerRow {
    pub id: ScorerName,
    pub name: &'static str,
    pub says: &'static str,
    /// What a score may be.
    pub range: &'static str,
    /// What `reward_model.ground_truth` must be.
    pub truth: &'static str,
    /// Where the rules are from.
    pub source: &'static str,
}

impl ScorerName {
    pub fn row(self) -> &'static ScorerRow {
        SCORERS
            .iter()
            .find(|row| row.id == self)
            .expect("a test finds every scorer in the table")
    }
}

/// Those that need no options first: `reward.scorer` may be one of these.
pub const SCORERS: [ScorerRow; 19] = [
    ScorerRow {
        id: ScorerName::Auto,
        name: "auto",
        says: "by the row's `data_source`, from the table below; a source that is not in it is an error",
        range: "its scorer's",
        truth: "its scorer's",
        source: "verl's default_compute_score",
    },
    ScorerRow {
        id: ScorerName::Exact,
        name: "exact",
        says: "the last turn is the truth, white space aside",
        range: "0 or 1",
        truth: "text, a number, or a list of these",
        source: "ours",
    },
    ScorerRow {
        id: ScorerName::Numeric,
        name: "numeric",
        says: "the last number of the last turn is the truth's, whatever way it is written (1,234.5, 3/4, 1e3, 12%)",
        range: "0 or 1",
        truth: "one number, as number or text, or a list of these",
        source: "ours",
    },
    ScorerRow {
        id: ScorerName::Gsm8k,
        name: "gsm8k",
        says: "the number behind the last `#### ` of the last 300 characters is the truth, as text",
        range: "0 or 1",
        truth: "text, a number, or a list of these",
        source: "verl's gsm8k; arXiv 2110.14168",
    },
    ScorerRow {
        id: ScorerName::Math,
        name: "math",
        says: "the last `\\boxed{}` and the truth are the same text after normalisation",
        range: "0 or 1",
        truth: "LaTeX, a number, or a list of these",
        source: "verl's math_reward; arXiv 2103.03874",
    },
    ScorerRow {
        id: ScorerName::MathDapo,
        name: "math_dapo",
        says: "the last `Answer:` line (else the last `\\boxed{}`) of the last 300 characters is the truth after Minerva's normalisation; \
               also reports `acc`",
        range: "-1 or 1",
        truth: "LaTeX, a number, or a list of these",
        source: "verl's math_dapo; arXiv 2503.14476 and 2206.14858",
    },
    ScorerRow {
        id: ScorerName::MathEqual,
        name: "math_equal",
        says: "the last `\\boxed{}` (else the last `answer is` line) has the truth's value: fractions, radicals, formulas, intervals, sets, \
               units, percent, calculated and not only compared",
        range: "0 or 1",
        truth: "LaTeX, a number, or a list of these",
        source: "ours",
    },
    ScorerRow {
        id: ScorerName::SearchEm,
        name: "search_em",
        says: "the last `<answer>…</answer>` is one of the truths without case, punctuation and articles; a quarter with more than ten tags",
        range: "0, 0.25 or 1",
        truth: "text, a list of texts, or {target: these}",
        source: "verl's search_r1_like_qa_em; arXiv 2503.09516",
    },
    ScorerRow {
        id: ScorerName::Choice,
        name: "choice",
        says: "the letter in the last `\\boxed{}` (else of the last `answer is`, else the last line that is a letter) is the truth",
        range: "0 or 1",
        truth: "a letter, or a list of these",
        source: "ours",
    },
    ScorerRow {
        id: ScorerName::Code,
        name: "code",
        says: "the last block of Python in the answer passes the row's tests, run in a sandbox",
        range: "0 or 1; 0 to 1 with `partial`, and for `auto`",
        truth: "{inputs, outputs} of a program, the same with `fn_name` of a function, or assertions",
        source: "verl's prime_code; APPS, arXiv 2105.09938",
    },
    ScorerRow {
        id: ScorerName::Regex,
        name: "regex",
        says: "a regular expression is found, is absent, or captures the truth",
        range: "0 or 1",
        truth: "any; for `compare: truth` text or a number",
        source: "ours",
    },
    ScorerRow {
        id: ScorerName::JsonSchema,
        name: "json_schema",
        says: "the JSON in the answer fits a schema",
        range: "0 or 1",
        truth: "any; without the option `schema` the schema itself",
        source: "json-schema.org, draft 2020-12",
    },
    ScorerRow {
        id: ScorerName::Format,
        name: "format",
        says: "tags, beginnings, ends and words are as they should be",
        range: "0 to 1",
        truth: "any",
        source: "ours",
    },
    ScorerRow {
        id: ScorerName::Length,
        name: "length",
        says: "the text is neither too short nor too long (in tokens, near the limit: `reward.reward_kwargs.overlong_buffer_cfg`)",
        range: "0 to 1",
        truth: "any",
        source: "ours",
    },
    ScorerRow {
        id: ScorerName::Python,
        name: "python",
        says: "a function of your own, as verl's `custom_reward_function`",
        range: "any number",
        truth: "any",
        source: "verl's custom reward functions",
    },
    ScorerRow {
        id: ScorerName::Model,
        name: "model",
        says: "a reward model reads prompt and answer: weights with a score head in the Hugging Face layout, as `lathe reward train` makes them",
        range: "any number",
        truth: "any",
        source: "arXiv 2203.02155",
    },
    ScorerRow {
        id: ScorerName::Http,
        name: "http",
        says: "a reward server is sent the dialogue as JSON",
        range: "any number",
        truth: "any",
        source: "ours",
    },
    ScorerRow {
        id: ScorerName::Judge,
        name: "judge",
        says: "a chat model rates the answer, asked over an OpenAI-compatible endpoint",
        range: "0 to 1",
        truth: "any",
        source: "arXiv 2306.05685",
    },
    ScorerRow {
        id: ScorerName::Human,
        name: "human",
        says: "what people would prefer: a small model that learns from their labels while they come",
        range: "any number, 0 in the middle",
        truth: "any, unless a scorer that it names asks for one",
        source: "ours",
    },
];

/// Scorers that `reward.scorer` may name.
const PLAIN: usize = 10;

const fn names<const COUNT: usize>() -> [&'static str; COUNT] {
    let mut names = [""; COUNT];
    let mut index = 0;
    while index < COUNT {
        names[index] = SCORERS[index].name;
        index += 1;
    }
    names
}

/// The choices of `reward.scorer`, in the order of the table.
pub const NAMES: [&str; PLAIN] = names();
/// Every scorer that an arm may have.
pub const ALL_NAMES: [&str; SCORERS.len()] = names();

pub fn by_name(name: &str) -> Option<ScorerName> {
    SCORERS
        .iter()
        .find(|row| row.name == name)
        .map(|row| row.id)
}

/// Which scorer judges a `data_source`; a name that ends in `*` is the beginning of several.
pub const SOURCES: [(&str, ScorerName); 29] = [
    ("openai/gsm8k", ScorerName::Gsm8k),
    ("lighteval/MATH", ScorerName::Math),
    ("DigitalLearningGmbH/MATH-lighteval", ScorerName::Math),
    ("HuggingFaceH4/MATH-500", ScorerName::Math),
    ("math_dapo", ScorerName::MathDapo),
    ("math", ScorerName::MathDapo),
    ("math_dapo_reasoning", ScorerName::MathDapo),
    ("aime*", ScorerName::MathDapo),
    ("searchR1_nq", ScorerName::SearchEm),
    ("searchR1_triviaqa", ScorerName::SearchEm),
    ("searchR1_popqa", ScorerName::SearchEm),
    ("searchR1_hotpotqa", ScorerName::SearchEm),
    ("searchR1_2wikimultihopqa", ScorerName::SearchEm),
    ("searchR1_musique", ScorerName::SearchEm),
    ("searchR1_bamboogle", ScorerName::SearchEm),
    ("numina_aops_forum", ScorerName::MathEqual),
    ("numina_synthetic_math", ScorerName::MathEqual),
    ("numina_amc_aime", ScorerName::MathEqual),
    ("numina_synthetic_amc", ScorerName::MathEqual),
    ("numina_cn_k12", ScorerName::MathEqual),
    ("numina_olympiads", ScorerName::MathEqual),
    ("codecontests", ScorerName::Code),
    ("apps", ScorerName::Code),
    ("codeforces", ScorerName::Code),
    ("taco", ScorerName::Code),
    ("lathe/calc", ScorerName::Numeric),
    ("lathe/sort", ScorerName::Exact),
    ("lathe/guess", ScorerName::Exact),
    ("math500", ScorerName::MathEqual),
];

/// The scorer of a `data_source`.
pub fn of_source(data_source: &str) -> Option<ScorerName> {
    let fits = |name: &str| match name.strip_suffix('*') {
        Some(beginning) => data_source.starts_with(beginning),
        None => data_source == name,
    };
    SOURCES
        .iter()
        .find(|(name, _)| fits(name))
        .map(|(_, scorer)| *scorer)
}

/// The sources of a scorer, `a, b`; empty: none.
fn sources(scorer: ScorerName) -> String {
    let names: Vec<&str> = SOURCES
        .iter()
        .filter(|(_, of)| *of == scorer)
        .map(|(name, _)| *name)
        .collect();
    names.join(", ")
}

/// For the help of `reward.scorer`.
pub fn help() -> String {
    let mut text = String::new();
    for row in &SCORERS[..PLAIN] {
        let _ = write!(text, "\n  {}: {} ({})", row.name, row.says, row.range);
        let sources = sources(row.id);
        if !sources.is_empty() {
            let _ = write!(text, "\n    data_source: {sources}");
        }
    }
    text
}

/// docs/rewards.md, from the table.
pub fn markdown() -> String {
    let mut text = INTRODUCTION.to_owned();
    text.push_str("\n## Scorers\n\n| scorer | what scores | score | ground truth | from |\n|---|---|---|---|---|\n");
    for row in &SCORERS {
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} |",
            row.name, row.says, row.range, row.truth, row.source
        );
    }
    text.push_str("\n## Which scorer `auto` takes\n\n| `data_source` | scorer |\n|---|---|\n");
    for row in &SCORERS {
        let sources = sources(row.id);
        if !sources.is_empty() {
            let listed = sources.replace(", ", "`, `");
            let _ = writeln!(text, "| `{listed}` | `{}` |", row.name);
        }
    }
    text.push_str(SOURCES_NOTE);
    text.push_str(&crate::arms::markdown());
    text
}

const INTRODUCTION: &str = "\
# Rewards

A scorer judges each finished dialogue. `reward.scorer` names it for all rows, or `auto` takes one by the row's `data_source`, as verl
does; `reward.arms` has several judges, or one with options. Made from the tables in `src/experiment/src/scorers.rs` and
`src/experiment/src/arms`; a test holds this page to them.

- A scorer sees what the model wrote, never what a tool did: text that came from a tool earns no reward.
- A scorer that fails, panics or is late gives no score at all, which is counted (`reward/missing_frac`) and never the same as 0.
- Beside the score a scorer reports numbers such as `format` (was there an answer to judge?) and `acc`; they stand in the rollouts and
  can be compared by `algorithm.filter_groups.metric` and `algorithm.gdpo_reward_keys`.
- `lathe check` runs the scorer over real rows, with the truth and with nonsense as the answer, before anything starts.
- Rules take time in proportion to the text, whatever a model writes.
";

const SOURCES_NOTE: &str = "
A name that ends in `*` is the beginning of several. verl judges the `numina_*` sources by its `prime_math`, which asks sympy; here
`math_equal` does, and the two differ where a form is too odd for one of them. Sources of programs are judged by the share of the first
ten tests, as verl does; an arm with `scorer: code` by all or nothing. `hiyouga/geometry3k` has no scorer here.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_what_serde_writes_and_leads_to_its_row() {
        for row in &SCORERS {
            let name: ScorerName = serde_json::from_value(row.name.into()).expect("a name");
            assert_eq!(name, row.id);
            assert_eq!(name.row().name, row.name);
            assert_eq!(by_name(row.name), Some(row.id));
        }
    }

    #[test]
    fn a_source_leads_to_verls_scorer_and_an_unknown_one_to_none() {
        assert_eq!(of_source("openai/gsm8k"), Some(ScorerName::Gsm8k));
        assert_eq!(of_source("aime2025"), Some(ScorerName::MathDapo));
        assert_eq!(of_source("HuggingFaceH4/MATH-500"), Some(ScorerName::Math));
        assert_eq!(of_source("math500"), Some(ScorerName::MathEqual));
        assert_eq!(of_source("apps"), Some(ScorerName::Code));
        assert_eq!(of_source("unknown/x"), None);
        assert_eq!(of_source("xaime"), None);
    }
}

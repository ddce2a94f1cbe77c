//! Seeded recipes for the small data sets in `datasets/`, and the tiny tokenizers they are learned with.
//!
//! | name | task | a row |
//! | --- | --- | --- |
//! | `calc` | two-step arithmetic, the calculator must be called twice | prompt `63*48-34=`, answer `2990` |
//! | `calc-demos` | poor demonstrations of it | 45 % call twice, 10 % once, 45 % guess at once |
//! | `sort`, `sort-demos` | sort six digits, one turn | `sort 304564`, answer `034456` |
//! | `guess`, `guess-demos` | find a number from 1 to 31 in five turns, the tool says higher or lower | `1-31` |
//! | `gsm8k-form` | word problems in GSM8K's form with a calculator | answer after `####` |
//!
//! The same name, rows, seed and split give the same rows on every machine. All text is our own, CC0.

mod arithmetic;
mod draw;
mod guess;
mod sort;
#[cfg(test)]
mod tests;
mod tiny;
mod words;

use serde_json::{Map, Value, json};

pub use tiny::{TinyModel, write_tiny};

/// One row, as it goes into Parquet.
pub type JsonRow = Map<String, Value>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Recipe {
    Calc,
    CalcDemos,
    Sort,
    SortDemos,
    Guess,
    GuessDemos,
    Gsm8kForm,
}

/// Train and test share no question (except `guess`, which has 31 secrets in all).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    Train,
    Test,
}

impl Split {
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Test => "test",
        }
    }

    /// Where a question belongs: one in eight is for testing, whatever the seed.
    fn of(question: &str) -> Self {
        // FNV-1a, 64 bits.
        let hash = question
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        if (hash >> 32).is_multiple_of(8) {
            Self::Test
        } else {
            Self::Train
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no recipe {name}; expected one of {known}")]
pub struct UnknownRecipe {
    pub name: String,
    pub known: String,
}

impl Recipe {
    pub const ALL: [Self; 7] = [
        Self::Calc,
        Self::CalcDemos,
        Self::Sort,
        Self::SortDemos,
        Self::Guess,
        Self::GuessDemos,
        Self::Gsm8kForm,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Calc => "calc",
            Self::CalcDemos => "calc-demos",
            Self::Sort => "sort",
            Self::SortDemos => "sort-demos",
            Self::Guess => "guess",
            Self::GuessDemos => "guess-demos",
            Self::Gsm8kForm => "gsm8k-form",
        }
    }

    pub fn parse(name: &str) -> Result<Self, UnknownRecipe> {
        Self::ALL
            .into_iter()
            .find(|recipe| recipe.name() == name)
            .ok_or_else(|| UnknownRecipe {
                name: name.to_owned(),
                known: Self::ALL.map(Self::name).join(", "),
            })
    }

    /// The rows, in order.
    pub fn rows(self, count: usize, seed: u64, split: Split) -> Vec<JsonRow> {
        match self {
            Self::Calc => arithmetic::prompts(count, seed, split),
            Self::CalcDemos => arithmetic::demonstrations(count, seed, split),
            Self::Sort => sort::prompts(count, seed, split),
            Self::SortDemos => sort::demonstrations(count, seed, split),
            Self::Guess => guess::prompts(count, seed, split),
            Self::GuessDemos => guess::demonstrations(count, seed, split),
            Self::Gsm8kForm => words::prompts(count, seed, split),
        }
    }
}

/// A file of `datasets/` and how it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shipped {
    pub file: &'static str,
    pub recipe: Recipe,
    pub count: usize,
    pub seed: u64,
    pub split: Split,
}

impl Shipped {
    const fn new(
        file: &'static str,
        recipe: Recipe,
        count: usize,
        seed: u64,
        split: Split,
    ) -> Self {
        Self {
            file,
            recipe,
            count,
            seed,
            split,
        }
    }

    pub fn rows(&self) -> Vec<JsonRow> {
        self.recipe.rows(self.count, self.seed, self.split)
    }
}

/// Everything in `datasets/`.
pub const SHIPPED: [Shipped; 11] = [
    Shipped::new("calc-train.parquet", Recipe::Calc, 2000, 1, Split::Train),
    Shipped::new("calc-test.parquet", Recipe::Calc, 512, 2, Split::Test),
    Shipped::new(
        "calc-demos.parquet",
        Recipe::CalcDemos,
        4000,
        3,
        Split::Train,
    ),
    Shipped::new("sort-train.parquet", Recipe::Sort, 2000, 1, Split::Train),
    Shipped::new("sort-test.parquet", Recipe::Sort, 512, 2, Split::Test),
    Shipped::new(
        "sort-demos.parquet",
        Recipe::SortDemos,
        4000,
        3,
        Split::Train,
    ),
    Shipped::new("guess-train.parquet", Recipe::Guess, 1000, 1, Split::Train),
    Shipped::new("guess-test.parquet", Recipe::Guess, 256, 2, Split::Test),
    Shipped::new(
        "guess-demos.parquet",
        Recipe::GuessDemos,
        4000,
        3,
        Split::Train,
    ),
    Shipped::new(
        "gsm8k-form-train.parquet",
        Recipe::Gsm8kForm,
        500,
        1,
        Split::Train,
    ),
    Shipped::new(
        "gsm8k-form-test.parquet",
        Recipe::Gsm8kForm,
        100,
        2,
        Split::Test,
    ),
];

/// What every prompt row has.
struct PromptRow<'a> {
    source: &'a str,
    system: Option<&'a str>,
    question: &'a str,
    ability: &'a str,
    agent: &'a str,
    answer: &'a str,
    split: Split,
    index: usize,
    /// `{tool: {create_kwargs: …}}`.
    tools_kwargs: Option<Value>,
    extra: Value,
}

impl PromptRow<'_> {
    fn json(self) -> JsonRow {
        let mut prompt = Vec::new();
        if let Some(system) = self.system {
            prompt.push(json!({"role": "system", "content": system}));
        }
        prompt.push(json!({"role": "user", "content": self.question}));
        let mut info = Map::new();
        info.insert("split".to_owned(), self.split.name().into());
        info.insert("index".to_owned(), self.index.into());
        if let Value::Object(extra) = self.extra {
            info.extend(extra);
        }
        if let Some(kwargs) = self.tools_kwargs {
            info.insert("need_tools_kwargs".to_owned(), true.into());
            info.insert("tools_kwargs".to_owned(), kwargs);
        }
        object(json!({
            "data_source": self.source,
            "prompt": prompt,
            "ability": self.ability,
            "agent_name": self.agent,
            "reward_model": {"style": "rule", "ground_truth": self.answer},
            "extra_info": info,
        }))
    }
}

fn object(value: Value) -> JsonRow {
    match value {
        Value::Object(fields) => fields,
        _ => JsonRow::new(),
    }
}

/// An assistant's message that calls a tool.
fn call(tool: &str, arguments: &Value) -> Value {
    json!({"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "function": {"name": tool, "arguments": arguments}}]})
}

fn said(role: &str, content: impl Into<String>) -> Value {
    json!({"role": role, "content": content.into()})
}

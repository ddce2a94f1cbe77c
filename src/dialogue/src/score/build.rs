//! From an arm of the experiment to its scorer.

use std::sync::Arc;
use std::time::Duration;

use experiment::arms::{Arm, Judge as Options, Model, Sees};

use super::{
    Choice, Code, Exact, Form, Gsm8k, Http, Human, JsonSchema, Judge, Lengthy, Math, MathDapo,
    MathEqual, Numeric, Pattern, Python, Scorer, SearchEm, WhichNumber, arms,
};

/// Makes the scorers that are models. They need libtorch, which is not here: whoever has it hands one of these in.
pub trait ModelScorers {
    /// The error says what about the model cannot be.
    fn scorer(&self, options: &Model, sees: Sees) -> Result<Arc<dyn Scorer>, String>;
}

/// Where there is no libtorch.
#[derive(Debug, Clone, Copy)]
pub struct NoModels;

impl ModelScorers for NoModels {
    fn scorer(&self, options: &Model, _: Sees) -> Result<Arc<dyn Scorer>, String> {
        Err(format!(
            "the reward model {} is loaded by lathe-trainer alone",
            options.path
        ))
    }
}

/// None: by the row's source. The error says which option cannot be.
pub fn scorer(arm: &Arm, models: &dyn ModelScorers) -> Result<Option<Arc<dyn Scorer>>, String> {
    let sees = arm.sees.unwrap_or_default();
    // As the two do by themselves: the last turn.
    let sees_answer = arm.sees.unwrap_or(Sees::FinalAnswer);
    // An attempt may still answer, late, while the arm's work goes on.
    let attempt = arms::grace(Duration::from_secs_f64(arm.timeout));
    let option = |problem| format!("options: {problem}");
    Ok(Some(match arm.judge()? {
        Options::Auto => match arm.sees {
            None => return Ok(None),
            Some(_) => return Err("sees has no effect with scorer auto: name a scorer".to_owned()),
        },
        Options::Exact(options) => Arc::new(Exact {
            sees: sees_answer,
            normalise_whitespace: options.normalise_whitespace,
            ignore_case: options.ignore_case,
        }),
        Options::Numeric(options) => Arc::new(Numeric {
            sees: sees_answer,
            which: if options.only {
                WhichNumber::Only
            } else {
                WhichNumber::Last
            },
            absolute_tolerance: options.absolute_tolerance,
            relative_tolerance: options.relative_tolerance,
        }),
        Options::Gsm8k(options) => Arc::new(Gsm8k {
            method: options.method,
            sees,
            format_score: options.format_score,
        }),
        Options::Math => Arc::new(Math { sees }),
        Options::MathDapo(options) => Arc::new(MathDapo {
            sees,
            strict_box: options.strict_box,
        }),
        Options::MathEqual => Arc::new(MathEqual { sees }),
        Options::SearchEm(options) => Arc::new(SearchEm {
            sees,
            format_score: options.format_score,
            substring: options.substring,
        }),
        Options::Choice(options) => Arc::new(Choice { sees, options }),
        Options::Code(options) => Arc::new(Code::new(options, sees)),
        Options::Regex(options) => Arc::new(Pattern::new(&options, sees).map_err(option)?),
        Options::JsonSchema(options) => Arc::new(JsonSchema::new(&options, sees).map_err(option)?),
        Options::Format(terms) => Arc::new(Form { sees, terms }),
        Options::Length(bounds) => Arc::new(Lengthy { sees, bounds }),
        Options::Python(options) => Arc::new(Python::new(options, sees)),
        Options::Model(options) => models.scorer(&options, sees)?,
        Options::Http(options) => Arc::new(Http::new(&options, sees, attempt)?),
        Options::Judge(options) => Arc::new(Judge::new(options, sees, attempt)?),
        Options::Human(options) => {
            let scorers = options
                .arms()?
                .iter()
                .map(|arm| scorer(arm, models)?.ok_or_else(|| "auto cannot be one".to_owned()))
                .collect::<Result<_, String>>()?;
            Arc::new(Human::new(&options, sees, arm.default, scorers))
        }
    }))
}

//! Which scorer judges which data, and the dry run over real rows before the first step.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use experiment::scorers::{SOURCES, ScorerName};
use experiment::settings::Reward;
use serde_json::Value;

use super::{
    Arms, Choice, Code, Exact, Gsm8k, Math, MathDapo, MathEqual, ModelScorers, NoModels, Numeric,
    ScoreError, Scorer, SearchEm, Sees, Transcript, score_within,
};

/// Scorers by `data_source`, or one for all.
#[derive(Debug, Clone)]
pub struct Scorers {
    /// Sources beyond the table's.
    own: BTreeMap<String, Arc<dyn Scorer>>,
    /// `reward.scorer` when it is not `auto`, or the arms.
    for_all: Option<Arc<dyn Scorer>>,
    arms: Option<Arc<Arms>>,
    by_source: Arc<BySource>,
    /// Of one score.
    pub timeout: Duration,
}

/// A `data_source` nobody can judge.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no scorer for data_source `{data_source}`; expected one of {known}, or set reward.scorer to the name of a scorer"
)]
pub struct UnknownSource {
    pub data_source: String,
    pub known: String,
}

/// What is wrong with a row, as the dry run finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    pub row_index: u64,
    pub message: String,
}

impl Scorers {
    /// With `auto` by the table of [`experiment::scorers`].
    pub fn new(name: ScorerName) -> Self {
        Self {
            own: BTreeMap::new(),
            for_all: by_name(name),
            arms: None,
            by_source: Arc::default(),
            timeout: Duration::from_secs(60),
        }
    }

    /// What an experiment says of its reward, where none of its arms is a model. The error says which arm or option cannot be.
    pub fn of(reward: &Reward) -> Result<Self, String> {
        Self::with_models(reward, &NoModels)
    }

    /// The same with arms that are models.
    pub fn with_models(reward: &Reward, models: &dyn ModelScorers) -> Result<Self, String> {
        let judging = experiment::arms::judging(reward);
        let mut scorers = Self::new(reward.scorer);
        if judging.is_empty() {
            return Ok(scorers);
        }
        let mut arms = Vec::new();
        for arm in judging {
            let scorer = super::build::scorer(&arm, models)
                .map_err(|problem| format!("reward.arms: {}: {problem}", arm.name))?;
            arms.push((arm, scorer));
        }
        let arms = Arc::new(Arms::new(&arms));
        scorers.for_all = Some(arms.clone());
        scorers.arms = Some(arms);
        // Each arm has its own; this one is for what nobody thought of.
        scorers.timeout = Duration::from_secs(3600);
        Ok(scorers)
    }

    /// The arms, where there are some.
    pub fn arms(&self) -> Option<&Arms> {
        self.arms.as_deref()
    }

    /// Adds a source or replaces its scorer.
    pub fn register(&mut self, data_source: impl Into<String>, scorer: Arc<dyn Scorer>) {
        self.own.insert(data_source.into(), scorer);
    }

    pub fn for_source(&self, data_source: &str) -> Result<Arc<dyn Scorer>, UnknownSource> {
        self.for_all
            .as_ref()
            .or_else(|| self.own.get(data_source))
            .cloned()
            .or_else(|| self.by_source.scorer(data_source))
            .ok_or_else(|| UnknownSource {
                data_source: data_source.to_owned(),
                known: self
                    .own
                    .keys()
                    .map(String::as_str)
                    .chain(SOURCES.iter().map(|(name, _)| *name))
                    .collect::<Vec<_>>()
                    .join(", "),
            })
    }

    /// Can these rows be judged? Each: index, data source, ground truth. Runs each scorer for real, with an empty answer and
    /// with the truth as the answer.
    pub async fn dry_run<'a>(
        &self,
        rows: impl IntoIterator<Item = (u64, &'a str, &'a Value)>,
    ) -> Vec<Complaint> {
        let mut complaints = Vec::new();
        for (row_index, data_source, ground_truth) in rows {
            if let Err(message) = self.dry_run_row(data_source, ground_truth).await {
                complaints.push(Complaint { row_index, message });
            }
        }
        complaints
    }

    async fn dry_run_row(&self, data_source: &str, ground_truth: &Value) -> Result<(), String> {
        let text = |error: ScoreError| format!("reward_model.ground_truth: {error}");
        let scorer = self
            .for_source(data_source)
            .map_err(|error| error.to_string())?;
        scorer.check(ground_truth).map_err(text)?;
        let mut answers = vec![String::new()];
        answers.extend(scorer.perfect_answers(ground_truth));
        for answer in answers {
            let mut transcript = sample(&answer, ground_truth.clone());
            data_source.clone_into(&mut transcript.data_source);
            score_within(scorer.clone(), transcript, self.timeout)
                .await
                .map_err(text)?;
        }
        Ok(())
    }
}

/// The scorers of the table's sources.
#[derive(Debug, Default)]
pub(super) struct BySource {
    /// It keeps sandboxes ready, so that there is one for all rows.
    code: OnceLock<Arc<dyn Scorer>>,
}

impl BySource {
    /// As verl judges the source; None: nobody knows it.
    pub fn scorer(&self, data_source: &str) -> Option<Arc<dyn Scorer>> {
        match experiment::scorers::of_source(data_source)? {
            ScorerName::Code => {
                let code = self.code.get_or_init(|| Arc::new(Code::by_share()));
                Some(Arc::clone(code))
            }
            name => by_name(name),
        }
    }
}

/// The scorer of a name as it is by default; None for `auto`, and for those that are nothing without options.
pub fn by_name(name: ScorerName) -> Option<Arc<dyn Scorer>> {
    Some(match name {
        ScorerName::Exact => Arc::new(Exact::default()),
        ScorerName::Numeric => Arc::new(Numeric::default()),
        ScorerName::Gsm8k => Arc::new(Gsm8k::default()),
        ScorerName::Math => Arc::new(Math::default()),
        ScorerName::MathDapo => Arc::new(MathDapo::default()),
        ScorerName::MathEqual => Arc::new(MathEqual::default()),
        ScorerName::SearchEm => Arc::new(SearchEm::default()),
        ScorerName::Choice => Arc::new(Choice::default()),
        ScorerName::Code => Arc::new(Code::new(
            experiment::arms::Code::default(),
            Sees::default(),
        )),
        ScorerName::Auto
        | ScorerName::Regex
        | ScorerName::JsonSchema
        | ScorerName::Format
        | ScorerName::Length
        | ScorerName::Python
        | ScorerName::Model
        | ScorerName::Http
        | ScorerName::Judge
        | ScorerName::Human => return None,
    })
}

/// A dialogue of one answer.
pub(super) fn sample(answer: &str, ground_truth: Value) -> Transcript {
    use crate::message::Message;
    Transcript {
        data_source: String::new(),
        ground_truth,
        extra_info: Value::Null,
        model_turns: vec![answer.to_owned()],
        messages: vec![Message::new("user", ""), Message::new("assistant", answer)],
        prompt_messages: 1,
        tool_rewards: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Score;
    use super::*;
    use crate::generate::BoxFuture;

    #[test]
    fn a_data_source_has_its_scorer_and_an_unknown_one_is_an_error_that_names_what_exists() {
        let scorers = Scorers::new(ScorerName::Auto);
        for (source, name) in [
            ("openai/gsm8k", "gsm8k"),
            ("lathe/calc", "numeric"),
            ("lathe/sort", "exact"),
            ("lathe/guess", "exact"),
            ("lighteval/MATH", "math"),
            ("aime_2024", "math_dapo"),
            ("searchR1_nq", "search_em"),
            ("numina_olympiads", "math_equal"),
            ("codecontests", "code"),
        ] {
            assert_eq!(scorers.for_source(source).expect("known").name(), name);
        }
        let message = scorers
            .for_source("my/data")
            .expect_err("unknown")
            .to_string();
        assert!(
            message.starts_with(
                "no scorer for data_source `my/data`; expected one of openai/gsm8k, lighteval/MATH, "
            ) && message.ends_with("or set reward.scorer to the name of a scorer"),
            "{message}"
        );
        let numeric = Scorers::new(ScorerName::Numeric);
        assert_eq!(
            numeric.for_source("my/data").expect("all").name(),
            "numeric"
        );
    }

    #[tokio::test]
    async fn every_scorer_gives_its_perfect_answers_the_most_and_nothing_less() {
        for row in &experiment::scorers::SCORERS {
            let Some(scorer) = by_name(row.id) else {
                continue;
            };
            assert_eq!(scorer.name(), row.name);
            let truth = match row.id {
                ScorerName::Choice => json!("B"),
                _ => json!("12"),
            };
            let answers = scorer.perfect_answers(&truth);
            if row.id == ScorerName::Code {
                // Nobody knows the program that passes.
                assert!(answers.is_empty());
                continue;
            }
            assert!(!answers.is_empty());
            for (answer, is_right) in answers
                .iter()
                .map(|text| (text.as_str(), true))
                .chain([("", false)])
            {
                let score = scorer.score(&sample(answer, truth.clone())).await;
                assert_eq!(
                    score.expect("a score").value >= 1.0,
                    is_right,
                    "{} of {answer:?}",
                    row.name
                );
            }
        }
    }

    #[tokio::test]
    async fn the_dry_run_names_the_rows_that_cannot_be_judged() {
        let truths = [json!("12"), json!("twelve"), json!(null)];
        let complaints = Scorers::new(ScorerName::Auto)
            .dry_run([
                (0, "lathe/calc", &truths[0]),
                (1, "lathe/calc", &truths[1]),
                (2, "my/data", &truths[0]),
                (3, "lathe/sort", &truths[2]),
            ])
            .await;
        let rows: Vec<u64> = complaints
            .iter()
            .map(|complaint| complaint.row_index)
            .collect();
        assert_eq!(rows, [1, 2, 3]);
        assert_eq!(
            complaints[0].message,
            "reward_model.ground_truth: the ground truth \"twelve\" does not suit the numeric scorer; expected one number, as number or text, or a list of these"
        );
    }

    struct Broken(&'static str);

    impl Scorer for Broken {
        fn name(&self) -> &'static str {
            "broken"
        }

        fn score<'a>(&'a self, _: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>> {
            Box::pin(async {
                match self.0 {
                    "panics" => panic!("boom"),
                    "hangs" => std::future::pending().await,
                    "nan" => Ok(Score::new(f64::NAN)),
                    _ => Err(ScoreError::Failed("no".to_owned())),
                }
            })
        }

        fn check(&self, _: &Value) -> Result<(), ScoreError> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_scorer_that_fails_in_any_way_gives_no_score() {
        for (how, message) in [
            ("panics", "the scorer panicked: boom"),
            ("hangs", "the scorer gave no answer within 60 s"),
            ("nan", "the score is NaN"),
            ("fails", "no"),
        ] {
            let transcript = sample("1", json!("1"));
            let error = score_within(Arc::new(Broken(how)), transcript, Duration::from_secs(60))
                .await
                .expect_err("no score");
            assert_eq!(error.to_string(), message);
        }
    }
}

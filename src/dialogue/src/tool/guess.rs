//! Guess the number: the tool knows a secret from the data row and answers `higher`, `lower` or `correct`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use serde_json::Value;

use super::config::only;
use super::{InstanceId, Parameters, Tool, ToolError, ToolKwargs, ToolOutcome, ToolSchema};
use crate::generate::BoxFuture;

/// Secrets and guesses are whole numbers from `low` to `high`. A row gives the secret (and may narrow the range):
/// `tools_kwargs.guess.create_kwargs: {secret: 17}`.
#[derive(Debug)]
pub struct Guess {
    low: i64,
    high: i64,
    games: Mutex<HashMap<InstanceId, Game>>,
}

#[derive(Debug, Clone, Copy)]
struct Game {
    low: i64,
    high: i64,
    secret: i64,
    guesses: u32,
    found: bool,
}

impl Guess {
    pub fn new(low: i64, high: i64) -> Self {
        Self {
            low,
            high,
            games: Mutex::default(),
        }
    }

    /// From `config: {low: 1, high: 31}`; `low` is 1 when absent.
    pub fn from_config(config: &Parameters) -> Result<Self, String> {
        only(config, &["low", "high"])?;
        let low = whole(config, "low")?.unwrap_or(1);
        let high = whole(config, "high")?.ok_or("`config.high` is missing")?;
        if low > high {
            return Err(format!("`config.low` {low} is above `config.high` {high}"));
        }
        Ok(Self::new(low, high))
    }

    /// The schema used when the YAML gives none: `guess(number)`.
    pub fn schema() -> ToolSchema {
        ToolSchema::function(
            "guess",
            "Guess the secret number. Answers higher, lower or correct.",
            &[("number", "integer", "Your guess.")],
        )
    }

    /// Dialogues that hold a secret now.
    pub fn instances(&self) -> usize {
        self.games().len()
    }

    fn games(&self) -> std::sync::MutexGuard<'_, HashMap<InstanceId, Game>> {
        self.games
            .lock()
            .expect("no code panics while it holds the games")
    }

    fn begin(&self, kwargs: &ToolKwargs) -> Result<Game, String> {
        let empty = Parameters::new();
        let row = kwargs.create_kwargs.as_ref().unwrap_or(&empty);
        let low = whole(row, "low")?.unwrap_or(self.low);
        let high = whole(row, "high")?.unwrap_or(self.high);
        let secret = whole(row, "secret")?
            .ok_or("the data row gives no secret (tools_kwargs.guess.create_kwargs.secret)")?;
        if !(low..=high).contains(&secret) {
            return Err(format!("the data row's secret is not from {low} to {high}"));
        }
        Ok(Game {
            low,
            high,
            secret,
            guesses: 0,
            found: false,
        })
    }
}

/// Parquet pads absent fields with null, and JSON writers turn whole numbers into floats.
fn whole(map: &Parameters, key: &str) -> Result<Option<i64>, String> {
    let value = match map.get(key) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    value
        .as_i64()
        .or_else(|| {
            value
                .as_f64()
                .filter(|number| number.fract() == 0.0 && number.abs() < 9e15)
                .map(|number| number as i64)
        })
        .map(Some)
        .ok_or_else(|| format!("`{key}` is {value}; expected a whole number"))
}

impl Tool for Guess {
    fn create<'a>(
        &'a self,
        instance: &'a InstanceId,
        kwargs: &'a ToolKwargs,
    ) -> BoxFuture<'a, Result<(), ToolError>> {
        Box::pin(async move {
            let game = self.begin(kwargs).map_err(ToolError::Failed)?;
            self.games().insert(instance.clone(), game);
            Ok(())
        })
    }

    fn execute<'a>(
        &'a self,
        instance: &'a InstanceId,
        parameters: &'a Parameters,
        _kwargs: &'a ToolKwargs,
    ) -> BoxFuture<'a, Result<ToolOutcome, ToolError>> {
        Box::pin(async move {
            let number = whole(parameters, "number")
                .and_then(|number| number.ok_or("`number` is missing".to_owned()))
                .map_err(ToolError::Failed)?;
            let mut games = self.games();
            let game = games
                .get_mut(instance)
                .ok_or_else(|| ToolError::Failed("this game is over".to_owned()))?;
            if !(game.low..=game.high).contains(&number) {
                return Err(ToolError::Failed(format!(
                    "guess a number from {} to {}",
                    game.low, game.high
                )));
            }
            game.guesses += 1;
            let answer = match game.secret.cmp(&number) {
                std::cmp::Ordering::Greater => "higher",
                std::cmp::Ordering::Less => "lower",
                std::cmp::Ordering::Equal => {
                    game.found = true;
                    "correct"
                }
            };
            Ok(ToolOutcome {
                text: answer.to_owned(),
                reward: None,
                metrics: BTreeMap::from([("guesses".to_owned(), f64::from(game.guesses))]),
            })
        })
    }

    fn calc_reward<'a>(
        &'a self,
        instance: &'a InstanceId,
        _kwargs: &'a ToolKwargs,
    ) -> BoxFuture<'a, Option<f64>> {
        Box::pin(async move {
            let found = self.games().get(instance)?.found;
            Some(if found { 1.0 } else { 0.0 })
        })
    }

    fn keeps_state(&self) -> bool {
        true
    }

    fn release(&self, instance: &InstanceId, _kwargs: &ToolKwargs) {
        self.games().remove(instance);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Parameters {
        match value {
            Value::Object(map) => map,
            _ => panic!("an object"),
        }
    }

    async fn ask(tool: &Guess, instance: &InstanceId, number: Value) -> Result<String, ToolError> {
        tool.execute(
            instance,
            &map(json!({ "number": number })),
            &ToolKwargs::default(),
        )
        .await
        .map(|outcome| outcome.text)
    }

    #[tokio::test]
    async fn the_answers_lead_to_the_secret_and_the_reward_says_whether_it_was_found() {
        let tool = Guess::new(1, 31);
        let instance = InstanceId("a".into());
        let kwargs = ToolKwargs {
            create_kwargs: Some(map(json!({"secret": 17, "high": null}))),
            ..ToolKwargs::default()
        };
        tool.create(&instance, &kwargs).await.expect("a game");
        assert_eq!(
            ask(&tool, &instance, json!(16)).await.as_deref(),
            Ok("higher")
        );
        assert_eq!(
            ask(&tool, &instance, json!(24.0)).await.as_deref(),
            Ok("lower")
        );
        assert_eq!(tool.calc_reward(&instance, &kwargs).await, Some(0.0));
        assert_eq!(
            ask(&tool, &instance, json!(17)).await.as_deref(),
            Ok("correct")
        );
        assert_eq!(tool.calc_reward(&instance, &kwargs).await, Some(1.0));
        assert_eq!(
            ask(&tool, &instance, json!(32)).await,
            Err(ToolError::Failed("guess a number from 1 to 31".to_owned()))
        );
        tool.release(&instance, &kwargs);
        assert_eq!(tool.instances(), 0);
        assert_eq!(
            ask(&tool, &instance, json!(17)).await,
            Err(ToolError::Failed("this game is over".to_owned()))
        );
    }

    #[tokio::test]
    async fn a_row_without_a_fitting_secret_is_named() {
        let tool = Guess::new(1, 31);
        let instance = InstanceId("a".into());
        for (row, message) in [
            (
                json!({}),
                "the data row gives no secret (tools_kwargs.guess.create_kwargs.secret)",
            ),
            (
                json!({"secret": 40}),
                "the data row's secret is not from 1 to 31",
            ),
            (
                json!({"secret": "x"}),
                "`secret` is \"x\"; expected a whole number",
            ),
        ] {
            let kwargs = ToolKwargs {
                create_kwargs: Some(map(row)),
                ..ToolKwargs::default()
            };
            assert_eq!(
                tool.create(&instance, &kwargs).await,
                Err(ToolError::Failed(message.to_owned()))
            );
        }
    }
}

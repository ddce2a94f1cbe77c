//! An exact calculator: rational arithmetic, so `0.1 + 0.2` is `0.3` and `1/3*3` is `1`.
//!
//! Numbers: `12`, `0.5`, `.5`, `1,234.5`, `1.5e3`, `15%` (a percent sign divides by 100). Operators: `+ - * /`, also
//! written `× ÷ − –`, powers `^` or `**` with a whole exponent, parentheses. Precedence as in Python: `-2^2` is `-4`.
//!
//! Answers: a whole number as digits, a finite decimal in full (`1/8` is `0.125`), anything else as a fraction in lowest
//! terms (`2/3`), because a rounded number would make the next step wrong. With `config: {decimals: N}` it is rounded
//! instead, halves away from zero. Length, nesting and size of numbers are bounded: no expression costs more than milliseconds.

use num_bigint::BigInt;
use num_rational::Ratio;
use serde_json::Value;

use super::config::only;
use super::{InstanceId, Parameters, Tool, ToolError, ToolKwargs, ToolOutcome, ToolSchema};
use crate::generate::BoxFuture;

mod evaluate;
mod print;

pub use evaluate::{CalculatorError, evaluate};
pub use print::print;

/// A number without rounding.
pub type Rational = Ratio<BigInt>;

/// The tool `calculator(expression)`. Keeps nothing between calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct Calculator {
    /// None: a fraction where the decimals do not end.
    decimals: Option<u32>,
}

impl Calculator {
    const MAX_DECIMALS: u64 = 100;

    /// From `config: {decimals: N}`.
    pub fn from_config(config: &Parameters) -> Result<Self, String> {
        only(config, &["decimals"])?;
        let decimals = match config.get("decimals") {
            None | Some(Value::Null) => None,
            Some(value) => Some(
                value
                    .as_u64()
                    .filter(|decimals| *decimals <= Self::MAX_DECIMALS)
                    .ok_or_else(|| {
                        format!(
                            "`config.decimals` is {value}; expected a whole number from 0 to {}",
                            Self::MAX_DECIMALS
                        )
                    })? as u32,
            ),
        };
        Ok(Self { decimals })
    }

    /// The schema used when the YAML gives none.
    pub fn schema() -> ToolSchema {
        ToolSchema::function(
            "calculator",
            "Evaluate an arithmetic expression exactly.",
            &[("expression", "string", "For example 63*48-34.")],
        )
    }

    /// The answer to an expression, as text.
    pub fn answer(&self, expression: &str) -> Result<String, CalculatorError> {
        Ok(print(&evaluate(expression)?, self.decimals))
    }
}

impl Tool for Calculator {
    fn execute<'a>(
        &'a self,
        _instance: &'a InstanceId,
        parameters: &'a Parameters,
        _kwargs: &'a ToolKwargs,
    ) -> BoxFuture<'a, Result<ToolOutcome, ToolError>> {
        Box::pin(async move {
            let expression = parameters
                .get("expression")
                .and_then(Value::as_str)
                .ok_or_else(|| {
                    ToolError::Failed("parameter \"expression\" is missing".to_owned())
                })?;
            self.answer(expression)
                .map(ToolOutcome::text)
                .map_err(|error| ToolError::Failed(error.to_string()))
        })
    }
}

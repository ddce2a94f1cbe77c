//! What a guard does when it trips, as words: `sync 3 + lower_lr 0.5`.

use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Action {
    /// Only tell.
    Alert,
    /// One version less may rollouts lag.
    ShrinkStaleness,
    /// So many steps with rollouts from the newest weights only, then as before.
    Sync { rounds: u32 },
    /// The actor's peak learning rate (and the critic's) times `factor`.
    LowerLr { factor: f64 },
    /// Weights, optimizers, critic, controllers and data cursor from a checkpoint; steps go on counting.
    RollBack { to: Target },
    /// End the run, with a checkpoint.
    Stop,
}

/// Which checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The newest from before the trouble began.
    Last,
    /// The one with the best evaluation.
    Best,
}

impl Action {
    /// From mild to hard: what comes after a ladder's own end.
    pub(super) const LADDER: [Self; 6] = [
        Self::ShrinkStaleness,
        Self::Sync { rounds: 3 },
        Self::LowerLr { factor: 0.5 },
        Self::RollBack { to: Target::Last },
        Self::RollBack { to: Target::Best },
        Self::Stop,
    ];

    /// How hard it interferes; 0 does not.
    pub(super) fn degree(self) -> u32 {
        match self {
            Self::Alert => 0,
            Self::ShrinkStaleness => 1,
            Self::Sync { .. } => 2,
            Self::LowerLr { .. } => 3,
            Self::RollBack { to: Target::Last } => 4,
            Self::RollBack { to: Target::Best } => 5,
            Self::Stop => 6,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alert => write!(f, "alert"),
            Self::ShrinkStaleness => write!(f, "shrink_staleness"),
            Self::Sync { rounds } => write!(f, "sync {rounds}"),
            Self::LowerLr { factor } => write!(f, "lower_lr {factor}"),
            Self::RollBack { to: Target::Last } => write!(f, "roll_back last"),
            Self::RollBack { to: Target::Best } => write!(f, "roll_back best"),
            Self::Stop => write!(f, "stop"),
        }
    }
}

const EXPECTED: &str =
    "alert, shrink_staleness, sync N, lower_lr FACTOR, roll_back last, roll_back best or stop";

impl FromStr for Action {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let (verb, argument) = (words.next().unwrap_or(""), words.next());
        if let Some(extra) = words.next() {
            return Err(format!(
                "action {text:?} has {extra:?} too much; join several by +"
            ));
        }
        let plain = |action: Self| match argument {
            None => Ok(action),
            Some(argument) => Err(format!("action {verb} takes nothing, got {argument:?}")),
        };
        match verb {
            "alert" => plain(Self::Alert),
            "shrink_staleness" => plain(Self::ShrinkStaleness),
            "stop" => plain(Self::Stop),
            "sync" => match argument.map_or(Ok(1), str::parse) {
                Ok(rounds @ 1..=1_000_000) => Ok(Self::Sync { rounds }),
                _ => Err(format!(
                    "action {text:?}: expected a number of steps from 1 on, as in sync 3"
                )),
            },
            "lower_lr" => match argument.map_or(Ok(0.5), str::parse) {
                Ok(factor) if factor > 0.0 && factor < 1.0 => Ok(Self::LowerLr { factor }),
                _ => Err(format!(
                    "action {text:?}: expected a factor between 0 and 1, as in lower_lr 0.5"
                )),
            },
            "roll_back" => match argument {
                None | Some("last") => Ok(Self::RollBack { to: Target::Last }),
                Some("best") => Ok(Self::RollBack { to: Target::Best }),
                Some(other) => Err(format!(
                    "action roll_back goes to last or best, not to {other:?}"
                )),
            },
            "" => Err(format!("an action is empty; expected {EXPECTED}")),
            other => Err(format!("action {other:?} is unknown; expected {EXPECTED}")),
        }
    }
}

/// What one trip does, in this order. Never empty.
#[derive(Debug, Clone, PartialEq)]
pub struct Rung(pub Vec<Action>);

impl Rung {
    pub(super) fn hardest(&self) -> Action {
        *self
            .0
            .iter()
            .max_by_key(|action| action.degree())
            .expect("a rung has an action")
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, action) in self.0.iter().enumerate() {
            let plus = if index > 0 { " + " } else { "" };
            write!(f, "{plus}{action}")?;
        }
        Ok(())
    }
}

impl FromStr for Rung {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let actions: Vec<Action> = text
            .split('+')
            .map(|action| action.trim().parse())
            .collect::<Result<_, _>>()?;
        let repeated = actions.iter().enumerate().any(|(index, action)| {
            actions[..index]
                .iter()
                .any(|before| std::mem::discriminant(before) == std::mem::discriminant(action))
        });
        if repeated {
            return Err(format!("action {text:?} says the same thing twice"));
        }
        Ok(Self(actions))
    }
}

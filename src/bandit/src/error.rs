//! What can be wrong with settings, a state, a context or a call.

/// Lowercase, says where, what, and what to do.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BanditError {
    /// A value outside its range, or two that do not fit together; `key` is the name in [`Settings`](crate::Settings).
    #[error("{key} {message}")]
    Setting { key: &'static str, message: String },
    #[error("{message}")]
    Arms { message: String },
    #[error("there is no arm {name:?}; the arms are {known}")]
    UnknownArm { name: String, known: String },
    #[error("linucb chooses by a context, and got none; give the prompt's embedding")]
    NoContext,
    #[error("the context has {got} dimensions; expected {expected}, as the first one had")]
    Dimensions { got: usize, expected: usize },
    #[error("the context is not usable: {message}")]
    Context { message: String },
    #[error("pull {pull} was never made; the next one is {next}")]
    UnknownPull { pull: u64, next: u64 },
    #[error("{name:?} is the last arm that is not frozen; free another one first")]
    LastArm { name: String },
    #[error("this state of a bandit does not fit: {message}")]
    State { message: String },
}

impl BanditError {
    pub(crate) fn setting(key: &'static str, message: impl Into<String>) -> Self {
        Self::Setting {
            key,
            message: message.into(),
        }
    }

    pub(crate) fn state(message: impl Into<String>) -> Self {
        Self::State {
            message: message.into(),
        }
    }
}

//! What an experiment for verl says that verl cannot be told.

use super::Rules;

impl Rules<'_> {
    /// A key that changes what is learned is an error; others are warnings, so that no guard is silently without effect.
    pub(super) fn verl(&mut self) {
        if !crate::verl::is_asked_for(self.experiment) {
            return;
        }
        for given in self.givens.all.clone() {
            let Some(not_sent) = crate::verl::not_sent(&given.key, &given.node.to_json()) else {
                continue;
            };
            let message = format!("{} is not sent to verl: {}", given.written, not_sent.why);
            if not_sent.is_error {
                self.error(&[&given.key], message);
            } else {
                self.warn(&[&given.key], message);
            }
        }
    }
}

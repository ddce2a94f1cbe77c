//! What became of the file on disk: read again, saved, or in conflict.

use experiment::Severity;

use super::document::Outside;
use super::files::Saved;
use super::problem;
use super::sheet::Sheet;
use crate::tui::action::Effect;
use crate::tui::shared::{Notice, Shared};

/// A file was looked at again.
pub(super) fn on_disk(
    sheet: &mut Sheet,
    result: &mut Result<Option<String>, String>,
    shared: &mut Shared,
) {
    let document = &mut sheet.document;
    let name = document.name().to_owned();
    match result {
        Ok(Some(disk)) if disk == document.saved() => document.outside = None,
        Ok(Some(disk))
            if disk == document.text() || document.saving.as_deref() == Some(disk.as_str()) =>
        {
            let disk = std::mem::take(disk);
            sheet.change(|document| document.mark_saved(disk));
        }
        Ok(Some(disk)) if document.is_modified() => {
            document.outside = Some(Outside::Changed(std::mem::take(disk)));
            shared.say(Notice::caution(format!(
                "{name} was changed outside: R takes that, W overwrites it, c compares"
            )));
        }
        Ok(Some(disk)) => {
            let disk = std::mem::take(disk);
            sheet.change(|document| document.reload(disk));
            shared.say(Notice::good(format!(
                "{name} was changed outside and is read again; u shows what it was"
            )));
        }
        Ok(None) => {
            document.outside = Some(Outside::Deleted);
            shared.say(Notice::caution(format!(
                "{name} was deleted; W writes it again"
            )));
        }
        Err(reason) => shared.say(Notice::bad(std::mem::take(reason))),
    }
}

pub(super) fn on_saved(
    sheet: &mut Sheet,
    text: String,
    outcome: &mut Saved,
    shared: &mut Shared,
) -> Vec<Effect> {
    sheet.document.saving = None;
    let name = sheet.document.name().to_owned();
    match outcome {
        Saved::Done => {
            sheet.change(|document| document.mark_saved(text));
            shared.say(match sheet.document.count(Severity::Error) {
                0 => Notice::good(format!("saved {name}")),
                1 => Notice::caution(format!("saved {name} with an error: it cannot be launched")),
                errors => Notice::caution(format!(
                    "saved {name} with {errors} errors: it cannot be launched"
                )),
            });
        }
        Saved::Conflict(outside) => {
            shared.say(Notice::caution(match outside {
                Outside::Changed(_) => format!(
                    "not saved: {name} was changed outside; R takes that, W overwrites it, c compares"
                ),
                Outside::Deleted => format!("not saved: {name} was deleted; W writes it again"),
            }));
            sheet.document.outside = Some(outside.clone());
        }
        Saved::Failed(reason) => {
            let help = "your edits are kept here; S saves them under another name";
            return problem(shared, "Not saved", reason, help);
        }
    }
    Vec::new()
}

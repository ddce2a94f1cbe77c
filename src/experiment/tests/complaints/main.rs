//! The words of every complaint: a table of files and overrides, and exactly what is said about each.

use std::fmt::Write as _;

use experiment::{Severity, from_text};

/// The cases stand in this file already, so the snapshot holds only what is said.
macro_rules! golden {
    ($said:expr) => {
        insta::with_settings!({omit_expression => true}, { insta::assert_snapshot!($said) })
    };
}

/// Enough to be valid; lines 1 to 4 of every case that starts with it.
const BASE: &str =
    "data:\n  train_files: train.parquet\n  train_batch_size: 256\nmodel: {path: m}\n";

/// Each case as `name | override | override`, its file, and what is said.
fn said(cases: &[(&str, &str, &[&str])]) -> String {
    let mut text = String::new();
    for (name, file, overrides) in cases {
        let file = file.replace("BASE", BASE.trim_end());
        let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
        let loaded = from_text("e.yaml", &file, &overrides);
        let _ = writeln!(text, "## {name}");
        for complaint in &loaded.complaints {
            // A note that every base file gets would only repeat itself.
            if complaint.severity == Severity::Note
                && complaint.line.is_none()
                && complaint.override_text.is_none()
            {
                continue;
            }
            let severity = format!("{:?}", complaint.severity).to_lowercase();
            let _ = writeln!(text, "{severity}: {complaint}");
        }
    }
    text
}

mod keys;
mod text;
mod together;
mod values;

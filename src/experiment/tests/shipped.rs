//! The experiments that ship are read without an error.

use std::path::{Path, PathBuf};

use experiment::{Severity, inspect};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments")
}

fn shipped() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .collect();
    files.sort();
    files
}

#[test]
fn every_shipped_experiment_loads() {
    assert!(shipped().len() >= 8);
    for path in shipped() {
        let loaded = inspect(&path, &[]);
        let errors: Vec<String> = loaded
            .complaints
            .iter()
            .filter(|complaint| complaint.severity == Severity::Error)
            .map(ToString::to_string)
            .collect();
        assert!(errors.is_empty(), "{errors:#?}");
        assert_eq!(loaded.resolved, loaded.source);
        for complaint in &loaded.complaints {
            println!("{:?} {complaint}", complaint.severity);
        }
    }
}

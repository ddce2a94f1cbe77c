//! Answer strings and the scores that verl 0.9.1 gives them; see `tests/data/scores`.

use serde_json::Value;

/// The cases of a file.
pub fn cases(name: &str) -> Vec<Value> {
    let text = match name {
        "math" => include_str!("../../tests/data/scores/math.json"),
        "search_em" => include_str!("../../tests/data/scores/search_em.json"),
        other => panic!("no cases of {other}"),
    };
    serde_json::from_str(text).expect("valid test data")
}

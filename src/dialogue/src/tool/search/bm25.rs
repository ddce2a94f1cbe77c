//! BM25 over passages in memory (Robertson and Zaragoza, <https://doi.org/10.1561/1500000019>), as Lucene counts it:
//!
//! score(q, d) = Σ over words t of q: ln(1 + (N − n + ½)/(n + ½)) · f / (f + k1·(1 − b + b·|d|/avg))
//!
//! N passages, n of them with t, f times in d, which has |d| words. A word is a run of letters and digits, in lower case.

use std::cmp::Ordering;
use std::collections::HashMap;

/// One passage that has a word, and how often.
#[derive(Debug, Clone, Copy)]
struct Posting {
    passage: u32,
    times: u16,
}

#[derive(Debug)]
pub struct Index {
    /// By word; passages rise.
    postings: HashMap<Box<str>, Vec<Posting>>,
    /// k1·(1 − b + b·|d|/avg) of each passage.
    norms: Vec<f32>,
}

impl Index {
    pub fn new<'a>(passages: impl Iterator<Item = &'a str>, k1: f32, b: f32) -> Self {
        let mut postings: HashMap<Box<str>, Vec<Posting>> = HashMap::new();
        let mut lengths = Vec::new();
        for (passage, text) in (0..).zip(passages) {
            let mut length = 0u32;
            for_each_word(text, |word| {
                length += 1;
                let of_word = match postings.get_mut(word) {
                    Some(of_word) => of_word,
                    None => postings.entry(word.into()).or_default(),
                };
                match of_word.last_mut() {
                    Some(last) if last.passage == passage => {
                        last.times = last.times.saturating_add(1);
                    }
                    _ => of_word.push(Posting { passage, times: 1 }),
                }
            });
            lengths.push(length);
        }
        let total: f64 = lengths.iter().map(|length| f64::from(*length)).sum();
        let mean = (total / lengths.len().max(1) as f64).max(1.0) as f32;
        let norms = lengths
            .iter()
            .map(|length| k1 * (1.0 - b + b * *length as f32 / mean))
            .collect();
        Self { postings, norms }
    }

    /// Different words.
    pub fn words(&self) -> usize {
        self.postings.len()
    }

    /// The best passages with their scores, the best first; of equals the earlier.
    pub fn find(&self, query: &str, most: usize) -> Vec<(u32, f32)> {
        let mut scores: HashMap<u32, f32> = HashMap::new();
        for_each_word(query, |word| {
            let Some(of_word) = self.postings.get(word) else {
                return;
            };
            let (all, with) = (self.norms.len() as f32, of_word.len() as f32);
            let rarity = (1.0 + (all - with + 0.5) / (with + 0.5)).ln();
            for posting in of_word {
                let times = f32::from(posting.times);
                let norm = self.norms[posting.passage as usize];
                *scores.entry(posting.passage).or_default() += rarity * times / (times + norm);
            }
        });
        let mut found: Vec<(u32, f32)> = scores.into_iter().collect();
        let better = |a: &(u32, f32), b: &(u32, f32)| -> Ordering {
            b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
        };
        if found.len() > most {
            found.select_nth_unstable_by(most, better);
            found.truncate(most);
        }
        found.sort_unstable_by(better);
        found
    }
}

fn for_each_word(text: &str, mut take: impl FnMut(&str)) {
    let mut lower = String::new();
    for word in text.split(|c: char| !c.is_alphanumeric()) {
        if !word.is_empty() {
            lower.clear();
            lower.extend(word.chars().flat_map(char::to_lowercase));
            take(&lower);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PASSAGES: [&str; 4] = [
        "Lathe\nA lathe turns wood and metal.",
        "Mill\nA mill grinds corn; a lathe does not.",
        "Bread\nBread is made of corn and water, and water, and salt.",
        "Ümläut\nGRÜSSE an die Drehbank.",
    ];

    fn index() -> Index {
        Index::new(PASSAGES.into_iter(), 0.9, 0.4)
    }

    #[test]
    fn the_passage_that_says_most_about_the_query_is_first() {
        let order = |query: &str| -> Vec<u32> {
            let found = index().find(query, 10);
            found.into_iter().map(|(passage, _)| passage).collect()
        };
        assert_eq!(order("LATHE"), [0, 1]);
        assert_eq!(order("corn, water?"), [2, 1]);
        assert_eq!(order("grüsse"), [3]);
        assert_eq!(order("nothing of it"), [2]);
        assert_eq!(order("?!"), [0u32; 0]);
        assert_eq!(index().find("a lathe", 1).len(), 1);
    }

    #[test]
    fn a_score_is_the_formulas() {
        let found = index().find("water", 1);
        // N = 4, n = 1, f = 2; 12 words, of 7 + 9 + 12 + 5 in all.
        let rarity = (1.0f64 + 3.5 / 1.5).ln();
        let norm = 0.9 * (0.6 + 0.4 * 12.0 / (33.0 / 4.0));
        let expected = rarity * 2.0 / (2.0 + norm);
        assert_eq!(found[0].0, 2);
        // Counted in single precision.
        assert!(
            (f64::from(found[0].1) - expected).abs() < 1e-6,
            "{found:?}, {expected}"
        );
    }

    /// The formula, passage by passage.
    fn plain(passages: &[String], query: &str, k1: f64, b: f64) -> Vec<f64> {
        let words = |text: &str| {
            let mut all: Vec<String> = Vec::new();
            for_each_word(text, |word| all.push(word.to_owned()));
            all
        };
        let all: Vec<Vec<String>> = passages.iter().map(|text| words(text)).collect();
        let mean = (all.iter().map(Vec::len).sum::<usize>() as f64 / all.len() as f64).max(1.0);
        all.iter()
            .map(|passage| {
                words(query)
                    .iter()
                    .map(|word| {
                        let with = all.iter().filter(|other| other.contains(word)).count() as f64;
                        let times = passage.iter().filter(|other| *other == word).count() as f64;
                        let rarity = (1.0 + (all.len() as f64 - with + 0.5) / (with + 0.5)).ln();
                        let norm = k1 * (1.0 - b + b * passage.len() as f64 / mean);
                        if times == 0.0 {
                            0.0
                        } else {
                            rarity * times / (times + norm)
                        }
                    })
                    .sum()
            })
            .collect()
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_the_formula_puts_first(
            passages in prop::collection::vec("[abc ]{0,12}", 1..12),
            query in "[abc ]{0,5}",
            most in 1usize..5,
        ) {
            let index = Index::new(passages.iter().map(String::as_str), 0.9, 0.4);
            let found = index.find(&query, most);
            let scores = plain(&passages, &query, 0.9, 0.4);
            let positive = scores.iter().filter(|score| **score > 0.0).count();
            prop_assert_eq!(found.len(), positive.min(most));
            for (passage, score) in &found {
                prop_assert!((f64::from(*score) - scores[*passage as usize]).abs() < 1e-5);
            }
            let lowest = found.last().map_or(f64::INFINITY, |(_, score)| f64::from(*score));
            for (passage, score) in scores.iter().enumerate() {
                let is_found = found.iter().any(|(found, _)| *found as usize == passage);
                prop_assert!(is_found || *score <= lowest + 1e-5 || found.is_empty());
            }
        }
    }
}

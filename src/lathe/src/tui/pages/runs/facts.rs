//! A row of the list as the filter sees it.

use jiff::Timestamp;
use runlog::filter::{Reduce, RunFacts};
use serde_json::Value as Json;

use super::columns::age_s;
use super::details::Detail;
use crate::tui::shared::RunEntry;

#[derive(Debug)]
pub struct Facts<'a> {
    pub entry: &'a RunEntry,
    pub detail: Option<&'a Detail>,
    pub config: Option<&'a Json>,
    pub now: Timestamp,
}

impl RunFacts for Facts<'_> {
    fn name(&self) -> &str {
        &self.entry.info.name
    }

    fn state(&self) -> &str {
        self.entry.state_word()
    }

    fn host(&self) -> &str {
        &self.entry.info.host
    }

    fn mode(&self) -> &str {
        self.entry
            .glance
            .as_ref()
            .map_or("", |glance| glance.mode.as_str())
    }

    fn note(&self) -> &str {
        &self.entry.notes.note
    }

    fn has_tag(&self, tag: &str) -> bool {
        self.entry.notes.tags().contains(tag)
    }

    fn step(&self) -> u64 {
        self.entry.glance.as_ref().map_or(0, |glance| glance.step)
    }

    fn age_s(&self) -> f64 {
        age_s(self.entry, self.now)
    }

    fn config(&self) -> &Json {
        self.config.unwrap_or(&Json::Null)
    }

    fn metric_names(&self) -> Vec<&str> {
        let of_log = self
            .detail
            .into_iter()
            .flat_map(|detail| detail.metrics.keys().map(String::as_str));
        let of_end = self
            .entry
            .glance
            .iter()
            .flat_map(|glance| glance.last.keys().map(String::as_str));
        let mut names: Vec<&str> = of_log.chain(of_end).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn metric(&self, name: &str, reduce: Reduce) -> Option<f64> {
        if reduce == Reduce::Last
            && let Some(value) = self.entry.glance.as_ref()?.last.get(name)
        {
            return Some(value.0);
        }
        let metric = self.detail?.metrics.get(name)?;
        match reduce {
            Reduce::Last => Some(metric.last),
            Reduce::First => Some(metric.first),
            Reduce::Min => metric.extremes.map(|(least, _)| least),
            Reduce::Max => metric.extremes.map(|(_, most)| most),
            // Resolved into min or max before it is asked.
            Reduce::Best => None,
            Reduce::Mean(count) => {
                let newest = &metric.newest[metric.newest.len().saturating_sub(count)..];
                (!newest.is_empty()).then(|| newest.iter().sum::<f64>() / newest.len() as f64)
            }
        }
    }
}

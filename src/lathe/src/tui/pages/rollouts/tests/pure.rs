use proptest::prelude::*;

use super::super::list::{Arrangement, Order, Row};
use super::super::{Batch, tokens};
use super::rows;

proptest! {
    #[test]
    fn every_sample_stands_once_in_every_order(which in 0_usize..5, is_reversed: bool, is_flat: bool) {
        let batch = Batch::new(2, rows(2));
        let arrangement = Arrangement { order: Order::ALL[which], is_reversed, is_flat };
        let rows = arrangement.rows(&batch);
        let mut samples: Vec<usize> = rows.iter().filter_map(|row| match row {
            Row::Sample(index) => Some(*index),
            Row::Group(_) => None,
        }).collect();
        samples.sort_unstable();
        prop_assert_eq!(samples, (0..batch.samples.len()).collect::<Vec<_>>());
        let groups = rows.len() - batch.samples.len();
        prop_assert_eq!(groups, if is_flat { 0 } else { batch.groups.len() });
    }

    #[test]
    fn every_token_stands_on_one_line_that_fits(
        texts in prop::collection::vec("[a-z ⏎]{1,6}", 0..60),
        width in 1_usize..30,
    ) {
        let lines = tokens::layout(&texts, width);
        let all: Vec<usize> = lines.iter().cloned().flatten().collect();
        prop_assert_eq!(all, (0..texts.len()).collect::<Vec<_>>());
        for line in lines {
            let wide: usize = texts[line.clone()].iter().map(|text| crate::tui::widgets::text::width(text)).sum();
            prop_assert!(wide <= width || line.len() == 1);
        }
    }
}

#[test]
fn equal_rewards_teach_nothing_only_without_an_advantage() {
    let mut rows = rows(2);
    for row in &mut rows[4..8] {
        row.advantages = Some(vec![0.0; row.response_ids.len()]);
    }
    let batch = Batch::new(2, rows.clone());
    assert!(batch.teaches_nothing(&batch.groups[1]));
    rows[5].advantages = Some(vec![0.25; rows[5].response_ids.len()]);
    let batch = Batch::new(2, rows);
    assert!(!batch.teaches_nothing(&batch.groups[1]));
    assert!(!batch.teaches_nothing(&batch.groups[0]));
}

#[test]
fn spread_and_mean_leave_out_missing_rewards() {
    let batch = Batch::new(2, rows(2));
    let group = &batch.groups[2];
    assert_eq!(group.samples.len(), 4);
    // 1, none, 1, 0
    assert!((group.mean.unwrap() - 2.0 / 3.0).abs() < 1e-12);
    assert!((group.spread.unwrap() - (2.0_f64 / 9.0).sqrt()).abs() < 1e-12);
    assert_eq!(batch.groups[1].spread, Some(0.0));
    assert_eq!(batch.parts, ["answer", "format"]);
}

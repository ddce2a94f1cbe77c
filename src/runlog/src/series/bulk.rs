//! Whole columns in and out, for segments on disk.

use super::rows::{RowHead, Rows};
use super::set::{Places, SeriesSet, Source, row_number};

/// Metrics that share their rows, as one table.
#[derive(Debug)]
pub(crate) struct Table<'a> {
    /// None: a metric that several sources write, with rows of its own.
    pub(crate) source: Option<Source>,
    rows: &'a Rows,
    pub(crate) columns: Vec<TableColumn<'a>>,
}

#[derive(Debug)]
pub(crate) struct TableColumn<'a> {
    pub(crate) name: &'a str,
    /// A value for each row that has one, in row order.
    pub(crate) values: &'a [f64],
    places: &'a Places,
}

impl TableColumn<'_> {
    /// None: a value in every row. Else the rows that have one, rising.
    pub(crate) fn rows(&self, rows: usize) -> Option<Vec<u32>> {
        match self.places {
            Places::Dense { first_row } => {
                let first = *first_row;
                (self.values.len() != rows)
                    .then(|| (first..first + row_number(self.values.len())).collect())
            }
            Places::Sparse(places) => Some(places.clone()),
        }
    }
}

/// Rows to append: the four x columns, of one length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heads<'a> {
    pub(crate) step: &'a [u64],
    pub(crate) elapsed_ms: &'a [f64],
    pub(crate) tokens: &'a [f64],
    pub(crate) samples: &'a [f64],
}

impl Heads<'_> {
    fn row(&self, row: usize) -> RowHead {
        RowHead {
            step: self.step[row],
            elapsed_ms: self.elapsed_ms[row],
            tokens: self.tokens[row],
            samples: self.samples[row],
        }
    }
}

impl SeriesSet {
    /// Everything as tables, those without metrics left out.
    pub(crate) fn tables(&self) -> Vec<Table<'_>> {
        let sources = Source::ALL.map(Some);
        let mut tables: Vec<Table<'_>> = self
            .rows
            .iter()
            .enumerate()
            .map(|(index, rows)| Table {
                source: sources.get(index).copied().flatten(),
                rows,
                columns: Vec::new(),
            })
            .collect();
        for track in self.by_name.values().map(|track| &self.tracks[*track]) {
            tables[track.rows].columns.push(TableColumn {
                name: &track.name,
                values: track.column.values(),
                places: &track.places,
            });
        }
        tables.retain(|table| !table.columns.is_empty());
        tables
    }

    /// Adds the rows of a table of one source, to which [`SeriesSet::append_column`] then adds values; gives the first row.
    /// `most` is how many rows the source may come to have.
    pub(crate) fn append_rows(&mut self, source: Source, heads: Heads<'_>, most: usize) -> usize {
        let rows = &mut self.rows[source as usize];
        let first = rows.len();
        rows.reserve(most);
        for row in 0..heads.step.len() {
            rows.push(heads.row(row));
        }
        first
    }

    /// Adds a metric's values of the rows from `first_row` on. `is_there`: None when every row has one, else which do; then
    /// `values` has an entry of each row all the same. `most` is how many values the series may come to have.
    pub(crate) fn append_column(
        &mut self,
        source: Source,
        first_row: usize,
        name: &str,
        values: &[f64],
        is_there: Option<&dyn Fn(usize) -> bool>,
        most: usize,
    ) {
        let own = source as usize;
        let first = (0..values.len()).find(|row| is_there.is_none_or(|is_there| is_there(*row)));
        let Some(first) = first else {
            return;
        };
        let id = self.track(name, own, first_row + first);
        let track = &mut self.tracks[id];
        if track.column.len() == 0 {
            track.column.reserve(most);
        }
        let goes_on = match track.places {
            Places::Dense { first_row: start } => {
                start as usize + track.column.len() == first_row + first
            }
            Places::Sparse(_) => false,
        };
        if track.rows == own && goes_on && is_there.is_none() {
            track.column.extend(values);
            return;
        }
        for (row, value) in values.iter().enumerate().skip(first) {
            if is_there.is_none_or(|is_there| is_there(row)) {
                let head = self.rows[own].head(first_row + row);
                self.push(id, own, first_row + row, head, *value);
            }
        }
    }

    /// Adds values of a metric that several sources write: its rows are its own.
    pub(crate) fn append_mixed(&mut self, name: &str, heads: Heads<'_>, values: &[f64]) {
        let id = match self.by_name.get(name) {
            Some(id) => *id,
            None => self.track(name, Source::Steps as usize, 0),
        };
        self.detach(id);
        let rows = self.tracks[id].rows;
        for (row, value) in values.iter().enumerate() {
            self.rows[rows].push(heads.row(row));
            self.tracks[id].column.push(*value);
        }
    }
}

impl Table<'_> {
    pub(crate) fn heads(&self) -> Heads<'_> {
        Heads {
            step: &self.rows.step,
            elapsed_ms: &self.rows.elapsed_ms,
            tokens: &self.rows.tokens,
            samples: &self.rows.samples,
        }
    }
}

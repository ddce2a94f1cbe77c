//! Several files as one data set, with one numbering of rows.

use std::path::{Path, PathBuf};

use super::DataError;
use super::row::{Need, Row};
use super::source::{RowRanges, permutation};
use super::table::Table;

/// How a data set is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// Column of the prompt (`data.prompt_key`).
    pub prompt_key: String,
    pub need: Need,
    /// Use at most so many rows: the first, or with `shuffle` a seeded random subset, as verl does.
    pub max_samples: Option<u64>,
    pub shuffle: bool,
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            prompt_key: "prompt".to_owned(),
            need: Need::Prompts,
            max_samples: None,
            shuffle: false,
            seed: 42,
        }
    }
}

/// Files in order. Rows are numbered over all of them from 0.
#[derive(Debug)]
pub struct DataSet {
    tables: Vec<Table>,
    /// First row of each table, and the number of rows at the end.
    starts: Vec<u64>,
    need: Need,
    /// The rows in use; None: all.
    in_use: Option<RowRanges>,
}

impl DataSet {
    /// Opens the files; a data set without rows is an error.
    pub fn open<P: AsRef<Path>>(files: &[P], options: &Options) -> Result<Self, DataError> {
        if files.is_empty() {
            return Err(DataError::NoFiles);
        }
        let tables = files
            .iter()
            .map(|file| Table::open(file.as_ref(), &options.prompt_key))
            .collect::<Result<Vec<_>, _>>()?;
        let mut starts = vec![0];
        for table in &tables {
            starts.push(starts[starts.len() - 1] + table.rows());
        }
        let mut set = Self {
            tables,
            starts,
            need: options.need,
            in_use: None,
        };
        let total = set.total_rows();
        if let Some(limit) = options.max_samples.filter(|limit| *limit < total) {
            let rows: Vec<u64> = if options.shuffle {
                // Epoch u64::MAX: a shuffle of its own, apart from every epoch's.
                permutation(total, options.seed, u64::MAX)
            } else {
                (0..total).collect()
            };
            set.in_use = Some(rows.into_iter().take(limit as usize).collect());
        }
        if set.rows() == 0 {
            return Err(DataError::Empty {
                files: set.file_names(),
            });
        }
        Ok(set)
    }

    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// The files' names, for messages.
    pub fn file_names(&self) -> String {
        let names: Vec<String> = self
            .tables
            .iter()
            .map(|table| table.path().display().to_string())
            .collect();
        names.join(", ")
    }

    /// Rows in all files, whether in use or not.
    pub fn total_rows(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    /// Rows in use: after `max_samples` and after screening.
    pub fn rows(&self) -> u64 {
        self.in_use
            .as_ref()
            .map_or_else(|| self.total_rows(), RowRanges::len)
    }

    /// Numbers of the rows in use, ascending.
    pub fn indices(&self) -> Vec<u64> {
        match &self.in_use {
            None => (0..self.total_rows()).collect(),
            Some(rows) => rows.iter().collect(),
        }
    }

    pub(super) fn keep(&mut self, rows: RowRanges) {
        self.in_use = Some(rows);
    }

    /// File and row within it.
    fn locate(&self, index: u64) -> Option<(usize, u64)> {
        (index < self.total_rows()).then(|| {
            let table = self.starts.partition_point(|start| *start <= index) - 1;
            (table, index - self.starts[table])
        })
    }

    /// Path of the file that holds a row.
    pub fn path_of(&self, index: u64) -> Option<PathBuf> {
        Some(self.tables[self.locate(index)?.0].path().to_owned())
    }

    /// The rows of these numbers, in that order. Reads only the row groups they are in.
    pub fn read(&self, indices: &[u64]) -> Result<Vec<Row>, DataError> {
        let mut per_table: Vec<Vec<u64>> = vec![Vec::new(); self.tables.len()];
        let mut slots = Vec::with_capacity(indices.len());
        for index in indices {
            let (table, row) = self.locate(*index).ok_or_else(|| DataError::NoRow {
                path: self.tables[self.tables.len() - 1].path().to_owned(),
                row: *index,
                rows: self.total_rows(),
            })?;
            slots.push((table, per_table[table].len()));
            per_table[table].push(row);
        }
        let found = self
            .tables
            .iter()
            .zip(&per_table)
            .map(|(table, rows)| {
                if rows.is_empty() {
                    Ok(Vec::new())
                } else {
                    table.read(rows, self.need)
                }
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(slots
            .into_iter()
            .zip(indices)
            .map(|((table, at), index)| Row {
                index: *index,
                ..found[table][at].clone()
            })
            .collect())
    }

    /// Every row in use, in file order, a few hundred in memory at a time.
    pub fn scan(&self) -> Result<impl Iterator<Item = Result<Row, DataError>> + '_, DataError> {
        let scans = self
            .tables
            .iter()
            .map(|table| table.scan(self.need))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(scans
            .into_iter()
            .zip(&self.starts)
            .flat_map(move |(rows, start)| {
                rows.enumerate()
                    .map(move |(at, row)| (start + at as u64, row))
            })
            .filter(|(index, _)| {
                self.in_use
                    .as_ref()
                    .is_none_or(|rows| rows.contains(*index))
            })
            .map(|(index, row)| row.map(|row| Row { index, ..row })))
    }
}

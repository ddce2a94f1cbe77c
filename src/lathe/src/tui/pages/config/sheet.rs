//! An open document with what is seen of it: the tree with its folds and filter, the text with its cursor, a comparison.

use std::collections::HashSet;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui_textarea::{CursorMove, TextArea};

use super::diff::DiffView;
use super::document::Document;
use super::rows::Row;
use crate::tui::widgets::list::ListState;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum View {
    #[default]
    Tree,
    Text,
    Diff,
}

#[derive(Debug)]
pub struct Sheet {
    pub document: Document,
    pub view: View,
    pub tree: Tree,
    pub text: TextView,
    pub diff: Option<DiffView>,
}

#[derive(Debug, Default)]
pub struct Tree {
    pub list: ListState,
    /// Full names of blocks.
    pub folded: HashSet<String>,
    /// Also the keys that the file does not give.
    pub shows_all: bool,
    pub filter: String,
    /// Indices of the document's rows.
    pub visible: Vec<usize>,
}

#[derive(Debug, Default)]
pub struct TextView {
    /// The line of the cursor.
    pub list: ListState,
    pub search: String,
    /// While the text is typed into.
    pub area: Option<TextArea<'static>>,
}

impl Sheet {
    pub fn new(document: Document) -> Self {
        let mut sheet = Self {
            document,
            view: View::Tree,
            tree: Tree::default(),
            text: TextView::default(),
            diff: None,
        };
        sheet.refresh();
        sheet
    }

    /// The selected row of the tree.
    pub fn row(&self) -> Option<&Row> {
        let visible = &self.tree.visible;
        let at = visible.get(self.tree.list.selected(visible.len()))?;
        self.document.rows().get(*at)
    }

    /// What the view shows, made anew after a change; the selected row stays selected.
    pub fn refresh(&mut self) {
        let selected = self.row().map(|row| (row.key.clone(), row.is_block));
        self.refresh_selecting(selected);
    }

    fn refresh_selecting(&mut self, selected: Option<(String, bool)>) {
        self.tree.visible = visible(self.document.rows(), &self.tree);
        if let Some((key, is_block)) = selected {
            self.select(&key, is_block);
        }
        if let Some(diff) = &mut self.diff {
            diff.refresh(&self.document);
        }
    }

    fn select(&mut self, key: &str, is_block: bool) -> bool {
        let rows = self.document.rows();
        let found = self.tree.visible.iter().position(|&at| {
            let row = &rows[at];
            row.key == key && row.is_block == is_block
        });
        if let Some(found) = found {
            self.tree.list.select(found);
        }
        found.is_some()
    }

    /// Changes the document and keeps the place.
    pub fn change<T>(&mut self, change: impl FnOnce(&mut Document) -> T) -> T {
        let selected = self.row().map(|row| (row.key.clone(), row.is_block));
        let outcome = change(&mut self.document);
        self.refresh_selecting(selected);
        outcome
    }

    /// Brings a key to the cursor, whatever hides it; false: there is no such row.
    pub fn reveal(&mut self, key: &str) -> bool {
        let rows = self.document.rows();
        // The worst block or key that holds it.
        let Some(row) = rows.iter().find(|row| row.key == key) else {
            return false;
        };
        let (is_block, is_in_file) = (row.is_block, row.is_in_file());
        self.tree.filter.clear();
        self.tree.shows_all |= !is_in_file;
        let mut outer = key;
        while let Some((block, _)) = outer.rsplit_once('.') {
            self.tree.folded.remove(block);
            outer = block;
        }
        self.refresh();
        self.select(key, is_block)
    }

    /// Brings what an undo changed to the cursor, when it is a key as the file writes it.
    pub fn select_changed(&mut self, path: &str) {
        let key = experiment::keys::canonical(path).path;
        self.select(&key, false);
    }

    pub fn line_count(&self) -> usize {
        self.document.text().split('\n').count()
    }

    /// The 0-based line of the selected row, for the text view.
    pub fn selected_line(&self) -> Option<usize> {
        Some(self.row()?.line? as usize - 1)
    }

    /// The row of the tree that stands at or before a 0-based line.
    pub fn select_line(&mut self, line: usize) {
        let rows = self.document.rows();
        let best = self
            .tree
            .visible
            .iter()
            .enumerate()
            .filter_map(|(at, &row)| Some((rows[row].line?, at)))
            .filter(|(of_row, _)| *of_row as usize <= line + 1)
            .max();
        if let Some((_, at)) = best {
            self.tree.list.select(at);
        }
    }

    /// Starts typing into the text at the cursor's line.
    pub fn start_typing(&mut self) {
        let lines: Vec<String> = self
            .document
            .text()
            .split('\n')
            .map(str::to_owned)
            .collect();
        let line = self.text.list.selected(lines.len());
        let mut area = TextArea::new(lines);
        // The document has the history.
        area.set_max_histories(0);
        area.set_tab_length(2);
        area.move_cursor(CursorMove::Jump(line as u16, 0));
        self.text.area = Some(area);
    }

    /// A key while typing; false: the typing ends.
    pub fn type_key(&mut self, key: KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Esc => {
                self.text.area = None;
                return false;
            }
            KeyCode::Char('u') if control => self.retype(Document::undo),
            KeyCode::Char('r') if control => self.retype(Document::redo),
            KeyCode::Enter => {
                if let Some(area) = &mut self.text.area {
                    // A line begins where the one before does.
                    let line = area.lines()[area.cursor().0].clone();
                    let before: String = line.chars().take(area.cursor().1).collect();
                    let indent: String = before.chars().take_while(|c| *c == ' ').collect();
                    area.insert_newline();
                    area.insert_str(indent);
                }
                self.take_typed("typing", false);
            }
            _ => {
                let is_changed = self.text.area.as_mut().is_some_and(|area| area.input(key));
                if is_changed {
                    self.take_typed("typing", true);
                }
            }
        }
        self.follow_cursor();
        true
    }

    pub fn type_paste(&mut self, pasted: &str) {
        if let Some(area) = &mut self.text.area {
            area.insert_str(pasted.replace("\r\n", "\n").replace('\r', "\n"));
        }
        self.take_typed("paste", false);
        self.follow_cursor();
    }

    fn take_typed(&mut self, what: &str, is_typing: bool) {
        if let Some(area) = &self.text.area {
            let text = area.lines().join("\n");
            self.change(|document| document.replace(text, what, is_typing));
        }
    }

    fn retype(&mut self, change: fn(&mut Document) -> Option<String>) {
        if self.change(change).is_none() {
            return;
        }
        let at = self.document.changed_at();
        self.start_typing();
        if let (Some(at), Some(area)) = (at, &mut self.text.area) {
            let before = self.document.text().get(..at).unwrap_or("");
            let line = before.matches('\n').count();
            let column = before.rsplit('\n').next().unwrap_or("").chars().count();
            area.move_cursor(CursorMove::Jump(line as u16, column as u16));
        }
    }

    fn follow_cursor(&mut self) {
        if let Some(area) = &self.text.area {
            self.text.list.select(area.cursor().0);
        }
    }

    /// To the next line (or the one before) that holds the searched text, around the end.
    pub fn find(&mut self, is_forward: bool) -> bool {
        let wanted = self.text.search.to_lowercase();
        if wanted.is_empty() {
            return false;
        }
        let hits: Vec<usize> = self
            .document
            .text()
            .split('\n')
            .enumerate()
            .filter(|(_, line)| line.to_lowercase().contains(&wanted))
            .map(|(line, _)| line)
            .collect();
        let now = self.text.list.selected(self.line_count());
        let next = if is_forward {
            hits.iter().find(|line| **line > now).or(hits.first())
        } else {
            hits.iter().rev().find(|line| **line < now).or(hits.last())
        };
        if let Some(line) = next {
            self.text.list.select(*line);
        }
        next.is_some()
    }
}

/// The rows that are seen: a filter shows what it finds with the blocks around it; else folds hide what is in them.
fn visible(rows: &[Row], tree: &Tree) -> Vec<usize> {
    let words: Vec<String> = tree
        .filter
        .split_whitespace()
        .map(str::to_lowercase)
        .collect();
    if words.is_empty() {
        let mut seen = Vec::new();
        let mut at = 0;
        while at < rows.len() {
            let row = &rows[at];
            if row.is_in_file() || tree.shows_all {
                seen.push(at);
            }
            at = if row.is_block && tree.folded.contains(&row.key) {
                row.end
            } else {
                at + 1
            };
        }
        return seen;
    }
    let is_found = |row: &Row| {
        let key = row.key.to_lowercase();
        let help = row
            .live()
            .map_or(String::new(), |live| live.help.to_lowercase());
        words.iter().all(|word| {
            key.contains(word.as_str())
                || row.path.to_lowercase().contains(word.as_str())
                || help.contains(word.as_str())
        })
    };
    let mut is_seen = vec![false; rows.len()];
    let mut around: Vec<usize> = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        around.retain(|&block| rows[block].end > at);
        if row.is_block {
            around.push(at);
        } else if is_found(row) {
            is_seen[at] = true;
            for &block in &around {
                is_seen[block] = true;
            }
        }
    }
    (0..rows.len()).filter(|&at| is_seen[at]).collect()
}

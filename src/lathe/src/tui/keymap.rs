//! Keys as text (`ctrl-d`, `g g`, `space`) and the map from what was pressed to a command.

use std::collections::HashMap;
use std::fmt;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::action::Command;
use super::bindings::{self, Binding, Context};

/// One key press, as bindings see it: shift is part of the character.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Chord {
    code: KeyCode,
    modifiers: KeyModifiers,
}

impl Chord {
    pub fn new(event: KeyEvent) -> Self {
        let mut modifiers =
            event.modifiers & (KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SHIFT);
        let code = match event.code {
            KeyCode::Char(c) => {
                modifiers.remove(KeyModifiers::SHIFT);
                KeyCode::Char(if modifiers.contains(KeyModifiers::CONTROL) {
                    c.to_ascii_lowercase()
                } else {
                    c
                })
            }
            KeyCode::BackTab => {
                modifiers.insert(KeyModifiers::SHIFT);
                KeyCode::Tab
            }
            other => other,
        };
        Self { code, modifiers }
    }

    /// The key press of this chord.
    #[cfg(test)]
    pub fn event(self) -> KeyEvent {
        KeyEvent::new(self.code, self.modifiers)
    }

    /// `ctrl-d`, `shift-tab`, `space`, `G`, `f5`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut modifiers = KeyModifiers::NONE;
        let mut rest = text;
        loop {
            let (modifier, after) = if let Some(after) = rest.strip_prefix("ctrl-") {
                (KeyModifiers::CONTROL, after)
            } else if let Some(after) = rest.strip_prefix("alt-") {
                (KeyModifiers::ALT, after)
            } else if let Some(after) = rest.strip_prefix("shift-") {
                (KeyModifiers::SHIFT, after)
            } else {
                break;
            };
            modifiers.insert(modifier);
            rest = after;
        }
        let code = match rest {
            "space" => KeyCode::Char(' '),
            "enter" => KeyCode::Enter,
            "esc" => KeyCode::Esc,
            "tab" => KeyCode::Tab,
            "backspace" => KeyCode::Backspace,
            "delete" => KeyCode::Delete,
            "left" => KeyCode::Left,
            "right" => KeyCode::Right,
            "up" => KeyCode::Up,
            "down" => KeyCode::Down,
            "home" => KeyCode::Home,
            "end" => KeyCode::End,
            "pgup" => KeyCode::PageUp,
            "pgdn" => KeyCode::PageDown,
            _ => {
                let mut characters = rest.chars();
                match (characters.next(), characters.as_str()) {
                    (Some(c), "") => KeyCode::Char(c),
                    (Some('f'), number) => {
                        KeyCode::F(number.parse().ok().filter(|n| (1..=12).contains(n))?)
                    }
                    _ => return None,
                }
            }
        };
        Some(Self { code, modifiers })
    }
}

impl fmt::Display for Chord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (modifier, name) in [
            (KeyModifiers::CONTROL, "ctrl-"),
            (KeyModifiers::ALT, "alt-"),
            (KeyModifiers::SHIFT, "shift-"),
        ] {
            if self.modifiers.contains(modifier) {
                f.write_str(name)?;
            }
        }
        match self.code {
            KeyCode::Char(' ') => f.write_str("space"),
            KeyCode::Char(c) => write!(f, "{c}"),
            KeyCode::F(number) => write!(f, "f{number}"),
            KeyCode::PageUp => f.write_str("pgup"),
            KeyCode::PageDown => f.write_str("pgdn"),
            other => f.write_str(&format!("{other:?}").to_lowercase()),
        }
    }
}

/// Keys pressed one after another: `g g`.
pub fn parse_sequence(text: &str) -> Option<Vec<Chord>> {
    let chords: Vec<Chord> = text
        .split(' ')
        .map(Chord::parse)
        .collect::<Option<Vec<_>>>()?;
    (!chords.is_empty()).then_some(chords)
}

/// What the keys so far mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    Command(Command),
    /// More keys may follow.
    Prefix,
    Nothing,
}

/// The bindings in force: the table's, changed by the user's settings.
#[derive(Debug, Clone)]
pub struct Keymap {
    sequences: HashMap<Context, Vec<(Vec<Chord>, Command)>>,
    /// Keys of each binding id, for help and footer.
    keys: HashMap<&'static str, Vec<String>>,
}

impl Default for Keymap {
    fn default() -> Self {
        Self::new(&std::collections::BTreeMap::new()).expect("the table's own keys are keys")
    }
}

impl Keymap {
    /// The table with the user's keys: binding id to keys; an empty list unbinds. The reason names the id or key at fault.
    pub fn new(remapped: &std::collections::BTreeMap<String, Vec<String>>) -> Result<Self, String> {
        for id in remapped.keys() {
            if !bindings::all().iter().any(|binding| binding.id == id) {
                return Err(format!(
                    "keys: there is no action `{id}`; `lathe bindings` lists them"
                ));
            }
        }
        let mut sequences: HashMap<Context, Vec<(Vec<Chord>, Command)>> = HashMap::new();
        let mut keys = HashMap::new();
        for binding in bindings::all() {
            let texts: Vec<String> = match remapped.get(binding.id) {
                Some(texts) => texts.clone(),
                None => binding.keys.iter().map(|&text| text.to_owned()).collect(),
            };
            for text in &texts {
                let sequence = parse_sequence(text).ok_or_else(|| {
                    format!(
                        "keys: {}: `{text}` is no key; write for example ctrl-d, space or g g",
                        binding.id
                    )
                })?;
                let known = sequences.entry(binding.context).or_default();
                // The user's binding wins over the table's of the same keys.
                if remapped.contains_key(binding.id) {
                    known.retain(|(other, _)| *other != sequence);
                    known.push((sequence, binding.command));
                } else if !known.iter().any(|(other, _)| *other == sequence) {
                    known.push((sequence, binding.command));
                }
            }
            keys.insert(binding.id, texts);
        }
        Ok(Self { sequences, keys })
    }

    /// Looks in `contexts` in order; the first that knows the keys answers.
    pub fn lookup(&self, contexts: &[Context], pressed: &[Chord]) -> Lookup {
        let mut is_prefix = false;
        for context in contexts {
            for (sequence, command) in self.sequences.get(context).into_iter().flatten() {
                if sequence == pressed {
                    return Lookup::Command(*command);
                }
                is_prefix |= sequence.starts_with(pressed);
            }
            if is_prefix {
                return Lookup::Prefix;
            }
        }
        Lookup::Nothing
    }

    /// The keys of a binding as the user has them.
    pub fn keys_of(&self, binding: &Binding) -> &[String] {
        self.keys.get(binding.id).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(text: &str) -> Vec<Chord> {
        parse_sequence(text).unwrap()
    }

    #[test]
    fn every_key_reads_back_as_it_is_shown() {
        for text in [
            "ctrl-d",
            "alt-x",
            "shift-tab",
            "space",
            "G",
            "f5",
            "pgdn",
            "-",
            "/",
            "?",
            "enter",
        ] {
            assert_eq!(Chord::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "ctl-d", "f13", "hello"] {
            assert_eq!(Chord::parse(text), None, "{text}");
        }
    }

    #[test]
    fn shift_is_part_of_the_character() {
        let event = KeyEvent::new(KeyCode::Char('G'), KeyModifiers::SHIFT);
        assert_eq!(Chord::new(event), Chord::parse("G").unwrap());
        let event = KeyEvent::new(KeyCode::BackTab, KeyModifiers::SHIFT);
        assert_eq!(Chord::new(event), Chord::parse("shift-tab").unwrap());
    }

    #[test]
    fn a_remapped_action_answers_to_its_new_keys_only() {
        let quit = bindings::all()
            .iter()
            .find(|binding| binding.id == "app.quit")
            .unwrap();
        let remapped = [("app.quit".to_owned(), vec!["ctrl-x q".to_owned()])].into();
        let map = Keymap::new(&remapped).unwrap();
        let global = [Context::Global];
        assert_eq!(map.lookup(&global, &press("q")), Lookup::Nothing);
        assert_eq!(map.lookup(&global, &press("ctrl-x")), Lookup::Prefix);
        assert_eq!(
            map.lookup(&global, &press("ctrl-x q")),
            Lookup::Command(quit.command)
        );
        assert_eq!(map.keys_of(quit), ["ctrl-x q"]);
    }

    #[test]
    fn a_wrong_remapping_says_what_is_wrong() {
        let error = Keymap::new(&[("app.quiet".to_owned(), vec![])].into()).unwrap_err();
        assert!(error.contains("no action `app.quiet`"), "{error}");
        let error =
            Keymap::new(&[("app.quit".to_owned(), vec!["meta-q".to_owned()])].into()).unwrap_err();
        assert!(error.contains("`meta-q` is no key"), "{error}");
    }
}

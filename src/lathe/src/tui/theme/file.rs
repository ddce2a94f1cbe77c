//! Theme files: reading, `base` and what is wrong with them. The shipped ones are part of the program.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ratatui::style::{Color, Modifier, Style};
use serde::Deserialize;

use super::{Appearance, Role, Theme, parse_color};

/// The shipped themes, `themes/*.yaml` of the source tree.
const BUILT_IN: &[(&str, &str)] = &[
    ("dark", include_str!("../../../../../themes/dark.yaml")),
    ("light", include_str!("../../../../../themes/light.yaml")),
    (
        "high-contrast",
        include_str!("../../../../../themes/high-contrast.yaml"),
    ),
    (
        "colorblind-dark",
        include_str!("../../../../../themes/colorblind-dark.yaml"),
    ),
    (
        "colorblind-light",
        include_str!("../../../../../themes/colorblind-light.yaml"),
    ),
    ("mono", include_str!("../../../../../themes/mono.yaml")),
];

/// How far `base` may lead: a chain longer than this is a circle.
const MOST_BASES: usize = 8;

#[derive(Debug, thiserror::Error)]
pub enum ThemeError {
    #[error("there is no theme `{name}`; themes: {}", known.join(", "))]
    Unknown { name: String, known: Vec<String> },
    #[error("cannot read {}: {source}", path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{place}: {reason}")]
    Content { place: String, reason: String },
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    base: Option<String>,
    #[serde(default)]
    appearance: Option<FileAppearance>,
    #[serde(default)]
    roles: BTreeMap<String, FileStyle>,
    #[serde(default)]
    series: Option<Vec<FileStyle>>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FileAppearance {
    Dark,
    Light,
}

/// `"#aabbcc"`, or a mapping with `fg`, `bg`, `bold`, `dim`, `underlined`, `reversed`.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum FileStyle {
    Color(FileColor),
    Full(FullStyle),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum FileColor {
    Index(u8),
    Text(String),
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FullStyle {
    fg: Option<FileColor>,
    bg: Option<FileColor>,
    bold: bool,
    dim: bool,
    underlined: bool,
    reversed: bool,
}

/// Names of the shipped themes.
pub fn built_in_names() -> &'static [&'static str] {
    const NAMES: [&str; 6] = [
        "dark",
        "light",
        "high-contrast",
        "colorblind-dark",
        "colorblind-light",
        "mono",
    ];
    &NAMES
}

/// Loads a theme by name: the first `<directory>/<name>.yaml` that exists, else the shipped one.
pub fn load(name: &str, directories: &[PathBuf]) -> Result<Theme, ThemeError> {
    let mut files = Vec::new();
    let mut next = Some(name.to_owned());
    while let Some(wanted) = next.take() {
        if files.len() >= MOST_BASES {
            return Err(ThemeError::Content {
                place: format!("theme {name}"),
                reason: "its `base` leads in a circle".to_owned(),
            });
        }
        // A file that is based on the shipped theme of its own name changes parts of it.
        let is_own_base = files.last().is_some_and(|(place, _): &(String, File)| {
            Path::new(place)
                .file_stem()
                .is_some_and(|stem| stem == wanted.as_str())
        });
        let (place, text) = find(&wanted, if is_own_base { &[] } else { directories })?;
        let file: File =
            experiment::yaml::from_text(&text).map_err(|reason| ThemeError::Content {
                place: place.clone(),
                reason,
            })?;
        next.clone_from(&file.base);
        files.push((place, file));
    }
    let mut theme = Theme {
        name: name.to_owned(),
        appearance: Appearance::Dark,
        styles: [Style::default(); Role::ALL.len()],
        series: vec![Style::default()],
    };
    for (place, file) in files.iter().rev() {
        apply(&mut theme, place, file)?;
    }
    Ok(theme)
}

fn find(name: &str, directories: &[PathBuf]) -> Result<(String, String), ThemeError> {
    for directory in directories {
        let path = directory.join(format!("{name}.yaml"));
        match std::fs::read_to_string(&path) {
            Ok(text) => return Ok((path.display().to_string(), text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => return Err(ThemeError::Io { path, source }),
        }
    }
    BUILT_IN
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(known, text)| (format!("{known} (shipped)"), (*text).to_owned()))
        .ok_or_else(|| ThemeError::Unknown {
            name: name.to_owned(),
            known: built_in_names().iter().map(|&n| n.to_owned()).collect(),
        })
}

fn apply(theme: &mut Theme, place: &str, file: &File) -> Result<(), ThemeError> {
    let wrong = |what: &str, reason: String| ThemeError::Content {
        place: place.to_owned(),
        reason: format!("{what}: {reason}"),
    };
    if let Some(appearance) = file.appearance {
        theme.appearance = match appearance {
            FileAppearance::Dark => Appearance::Dark,
            FileAppearance::Light => Appearance::Light,
        };
    }
    for (name, given) in &file.roles {
        let role = Role::ALL
            .into_iter()
            .find(|role| role.name() == name)
            .ok_or_else(|| {
                let known: Vec<&str> = Role::ALL.iter().map(|role| role.name()).collect();
                wrong(name, format!("no such role; roles: {}", known.join(", ")))
            })?;
        theme.styles[role as usize] = style(given).map_err(|reason| wrong(name, reason))?;
    }
    if let Some(series) = &file.series {
        if series.is_empty() {
            return Err(wrong("series", "give at least one colour".to_owned()));
        }
        theme.series = series
            .iter()
            .map(|given| style(given).map_err(|reason| wrong("series", reason)))
            .collect::<Result<_, _>>()?;
    }
    Ok(())
}

fn style(given: &FileStyle) -> Result<Style, String> {
    let full = match given {
        FileStyle::Color(fg) => FullStyle {
            fg: Some(fg.clone()),
            ..FullStyle::default()
        },
        FileStyle::Full(full) => full.clone(),
    };
    let mut style = Style::default();
    if let Some(fg) = &full.fg {
        style = style.fg(color(fg)?);
    }
    if let Some(bg) = &full.bg {
        style = style.bg(color(bg)?);
    }
    for (is_on, modifier) in [
        (full.bold, Modifier::BOLD),
        (full.dim, Modifier::DIM),
        (full.underlined, Modifier::UNDERLINED),
        (full.reversed, Modifier::REVERSED),
    ] {
        if is_on {
            style = style.add_modifier(modifier);
        }
    }
    Ok(style)
}

fn color(given: &FileColor) -> Result<Color, String> {
    match given {
        FileColor::Index(index) => Ok(Color::Indexed(*index)),
        FileColor::Text(text) => parse_color(text).ok_or_else(|| {
            format!("`{text}` is no colour; write \"#5fafd7\", a number up to 255, or a name such as red")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn a_theme_of_ones_own_changes_only_what_it_names() {
        let folder = folder(&[("mine.yaml", "base: dark\nroles:\n  good: \"#00ff00\"\n")]);
        let theme = load("mine", &[folder.path().to_owned()]).unwrap();
        let dark = load("dark", &[]).unwrap();
        assert_eq!(theme.style(Role::Good).fg, Some(Color::Rgb(0, 255, 0)));
        assert_eq!(theme.style(Role::Bad), dark.style(Role::Bad));
        assert_eq!(theme.series(3), dark.series(3));
    }

    #[test]
    fn a_file_named_as_a_shipped_theme_may_be_based_on_it() {
        let folder = folder(&[("dark.yaml", "base: dark\nroles: {bad: 201}\n")]);
        let theme = load("dark", &[folder.path().to_owned()]).unwrap();
        assert_eq!(theme.style(Role::Bad).fg, Some(Color::Indexed(201)));
        assert_eq!(
            theme.style(Role::Good),
            load("dark", &[]).unwrap().style(Role::Good)
        );
    }

    #[test]
    fn what_is_wrong_in_a_theme_is_said_with_its_place() {
        for (text, said) in [
            ("roles: {better: red}", "better: no such role; roles: text"),
            ("roles: {good: reddish}", "good: `reddish` is no colour"),
            ("series: []", "series: give at least one colour"),
            ("colors: {}", "unknown field `colors`"),
            ("base: b", "leads in a circle"),
        ] {
            let folder = folder(&[("a.yaml", text), ("b.yaml", "base: a\n")]);
            let error = load("a", &[folder.path().to_owned()])
                .unwrap_err()
                .to_string();
            assert!(error.contains(said), "{error}");
        }
        let error = load("darkk", &[]).unwrap_err().to_string();
        assert!(error.contains("there is no theme `darkk`; themes: dark, light"));
    }
}

//! The Python modules that a file of the project imports from its own folder, or from the folder that `lathe` runs in: they go along
//! with it to another machine. What is in neither is installed there.
//!
//! Found by reading, not by running: what a program builds a name for is not found.

use std::path::{Path, PathBuf};

/// What a line imports.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Import {
    /// Dots before the name: 0 is looked for in the folders of modules, 1 in the file's own package, 2 above it.
    level: usize,
    module: Vec<String>,
    /// After `import` in `from module import …`: modules too, or what stands in one.
    names: Vec<String>,
}

/// A folder of modules, and what it is called there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Root {
    pub here: PathBuf,
    /// Empty: the project's folder itself.
    pub there: String,
}

impl Root {
    /// The project's own.
    pub fn project() -> Self {
        Self {
            here: PathBuf::new(),
            there: String::new(),
        }
    }

    /// The folder of a file that is called `name` there.
    pub fn of(file: &Path, name: &str) -> Self {
        let there = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        Self {
            here: file.parent().unwrap_or(Path::new("")).to_owned(),
            there: there.to_owned(),
        }
    }

    fn join(&self, part: &str) -> Self {
        Self {
            here: self.here.join(part),
            there: self.name(part),
        }
    }

    /// None: above what has a name there.
    fn parent(&self) -> Option<Self> {
        let there = match self.there.rsplit_once('/') {
            Some((parent, _)) => parent,
            None if self.there.is_empty() => return None,
            None => "",
        };
        Some(Self {
            here: self.here.parent()?.to_owned(),
            there: there.to_owned(),
        })
    }

    fn name(&self, file: &str) -> String {
        if self.there.is_empty() {
            file.to_owned()
        } else {
            format!("{}/{file}", self.there)
        }
    }

    /// The file of that name in it, and what it is called there.
    fn file(&self, name: &str) -> Option<(String, PathBuf)> {
        let path = self.here.join(name);
        path.is_file().then(|| (self.name(name), path))
    }
}

/// The files of modules that a Python file imports by itself, each with its name there; those that these import are not asked for.
pub(super) fn imported(file: &Path, name: &str) -> Vec<(String, PathBuf)> {
    let Ok(text) = std::fs::read_to_string(file) else {
        return Vec::new();
    };
    let own = Root::of(file, name);
    let mut found = Vec::new();
    for import in imports(&text) {
        let roots = match import.level {
            0 => vec![own.clone(), Root::project()],
            level => {
                let above = (1..level).try_fold(own.clone(), |root, _| root.parent());
                above.into_iter().collect()
            }
        };
        for root in roots {
            let files = files_of(&root, &import.module, &import.names);
            if !files.is_empty() {
                found.extend(files);
                break;
            }
        }
    }
    found
}

/// The files that a dotted name stands for, such as the class of a tool, in a folder of modules.
pub(super) fn named(dotted: &str) -> Vec<(String, PathBuf)> {
    let parts: Vec<String> = dotted.split('.').map(str::to_owned).collect();
    if parts.len() < 2 || !parts.iter().all(|part| is_name(part)) {
        return Vec::new();
    }
    let (last, module) = parts.split_last().expect("it has two parts or more");
    files_of(&Root::project(), module, std::slice::from_ref(last))
}

/// With every package on the way.
fn files_of(root: &Root, module: &[String], names: &[String]) -> Vec<(String, PathBuf)> {
    const PACKAGE: &str = "__init__.py";
    let mut at = root.clone();
    let mut found = Vec::new();
    for part in module {
        found.extend(at.file(&format!("{part}.py")));
        at = at.join(part);
        found.extend(at.file(PACKAGE));
    }
    if module.is_empty() {
        found.extend(at.file(PACKAGE));
    }
    for name in names {
        found.extend(at.file(&format!("{name}.py")));
        found.extend(at.join(name).file(PACKAGE));
    }
    found
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|c| c == '_' || c.is_alphanumeric())
        && !text.starts_with(|c: char| c.is_ascii_digit())
}

/// Every import of a file, wherever it stands. One in a text costs a look at a file that is not there.
fn imports(text: &str) -> Vec<Import> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut line = without_comment(line).trim().to_owned();
        if !line.starts_with("import ") && !line.starts_with("from ") {
            continue;
        }
        while line.contains('(') && !line.contains(')') || line.ends_with('\\') {
            let Some(next) = lines.next() else { break };
            line = format!(
                "{} {}",
                line.trim_end_matches('\\'),
                without_comment(next).trim()
            );
        }
        if let Some(modules) = line.strip_prefix("import ") {
            found.extend(listed(modules).map(|module| Import {
                level: 0,
                module: module.split('.').map(str::to_owned).collect(),
                names: Vec::new(),
            }));
        } else if let Some((module, names)) = line
            .strip_prefix("from ")
            .and_then(|rest| rest.split_once(" import "))
        {
            let module = module.trim();
            let name = module.trim_start_matches('.');
            found.push(Import {
                level: module.len() - name.len(),
                module: name
                    .split('.')
                    .filter(|part| !part.is_empty())
                    .map(str::to_owned)
                    .collect(),
                names: listed(names).map(str::to_owned).collect(),
            });
        }
    }
    found
}

/// `a, b as c`, perhaps in parentheses: a and b.
fn listed(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .filter_map(|one| {
            one.trim_matches(|c: char| c.is_whitespace() || "()".contains(c))
                .split_whitespace()
                .next()
        })
        .filter(|name| name.split('.').all(is_name))
}

fn without_comment(line: &str) -> &str {
    line.split_once('#').map_or(line, |(code, _)| code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_beside_a_file_are_found_with_their_packages_and_installed_ones_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        for file in [
            "scores/exact.py",
            "scores/__init__.py",
            "scores/deep/__init__.py",
            "scores/deep/parse.py",
            "helper.py",
            "other.py",
            "reward.py",
        ] {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let reward = folder.path().join("reward.py");
        let text = "import re, numpy as np\nimport helper  # ours\nfrom scores import (\n    exact,\n    Grader,\n)\n\
                    def score():\n    from scores.deep.parse import tree\n";
        std::fs::write(&reward, text).unwrap();
        let names: Vec<String> = imported(&reward, "sent/ab/reward.py")
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(
            names,
            [
                "sent/ab/helper.py",
                "sent/ab/scores/__init__.py",
                "sent/ab/scores/exact.py",
                "sent/ab/scores/__init__.py",
                "sent/ab/scores/deep/__init__.py",
                "sent/ab/scores/deep/parse.py",
            ]
        );
        let inner = folder.path().join("scores/deep/parse.py");
        std::fs::write(&inner, "from ..exact import same\nfrom ....up import x\n").unwrap();
        let names: Vec<String> = imported(&inner, "scores/deep/parse.py")
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["scores/exact.py"]);
    }

    #[test]
    fn what_is_no_import_is_none() {
        assert_eq!(imports("x = 'important'\nfrom = 1\nimport 1a\n"), []);
        let import = &imports("from . import \\\n    a, b\n")[0];
        assert_eq!(import.level, 1);
        assert_eq!(import.names, ["a", "b"]);
        assert_eq!(named("one"), []);
        assert_eq!(named("a file.name"), []);
    }
}

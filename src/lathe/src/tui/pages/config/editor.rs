//! `$VISUAL` or `$EDITOR` on a copy of the text.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::edit::refuses;
use super::sheet::Sheet;
use super::{Message, answer, files};
use crate::tui::action::Effect;
use crate::tui::shared::Shared;

/// A copy of the text as it stands goes to the editor, so that neither the file nor unsaved edits are at risk.
pub(super) fn external(sheet: &Sheet, shared: &mut Shared) -> Vec<Effect> {
    if refuses(sheet, shared) {
        return Vec::new();
    }
    let path = sheet.document.path().to_owned();
    let text = sheet.document.text().to_owned();
    vec![Effect::job(
        "copy for the editor",
        move || match copy_for_editor(&path, &text) {
            Ok(copy) => {
                let editor = ["VISUAL", "EDITOR"]
                    .iter()
                    .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
                    .unwrap_or_else(|| "vi".to_owned());
                answer(Message::EditorReady { path, copy, editor })
            }
            Err(error) => answer(Message::Edited {
                path,
                result: Err(format!("no copy could be made for the editor: {error}")),
            }),
        },
    )]
}

/// In a folder of its own, readable by its owner alone, under the file's own name.
fn copy_for_editor(path: &Path, text: &str) -> std::io::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let name = path.file_name().unwrap_or_default();
    let base = std::env::temp_dir();
    for attempt in 0..100_u32 {
        let folder = base.join(format!("lathe-edit-{}-{attempt}", std::process::id()));
        match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(()) => {
                let copy = folder.join(name);
                File::create(&copy)?.write_all(text.as_bytes())?;
                return Ok(copy);
            }
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}

/// The editor's command line may have options of its own, so a shell reads it.
pub(super) fn foreground(path: &mut PathBuf, copy: &mut PathBuf, editor: &str) -> Effect {
    let mut program = std::process::Command::new("sh");
    program
        .arg("-c")
        .arg(format!("{editor} \"$1\""))
        .arg("sh")
        .arg(&*copy);
    let path = std::mem::take(path);
    let copy = std::mem::take(copy);
    let editor = editor.to_owned();
    Effect::Foreground {
        program,
        then: Box::new(move |status| {
            let kept = copy.display().to_string();
            let result = match status {
                Ok(status) if status.success() => files::read(&copy),
                Ok(status) => Err(format!(
                    "{editor} ended with {status}; its copy is kept: {kept}"
                )),
                Err(error) => Err(format!(
                    "cannot start {editor}: {error}; set $VISUAL or $EDITOR"
                )),
            };
            if result.is_ok() {
                // A copy that stays behind harms nobody.
                let _ = std::fs::remove_file(&copy);
                let _ = copy.parent().map(std::fs::remove_dir);
            }
            answer(Message::Edited { path, result })
        }),
    }
}

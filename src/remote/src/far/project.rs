//! The folder a run is started in: the files that were sent for it, under the names its experiment gives them.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::{Folder, is_inner, store};
use crate::ssh::private_dir;
use crate::wire::Begin;

/// Makes `project/` of a run: sent files, and links to the models that are here.
pub(super) fn make(folder: &Folder, run: &Path, begin: &Begin) -> Result<PathBuf, String> {
    let project = run.join("project");
    private_dir(&project).map_err(|error| format!("cannot make {}: {error}", project.display()))?;
    for sent in &begin.files {
        if !is_inner(&sent.path) {
            return Err(format!("`{}` leads out of the project", sent.path));
        }
        store::link(folder, sent, &project.join(&sent.path))?;
    }
    for model in &begin.models {
        let found = match find_model(model, begin.models_folder.as_deref()) {
            Ok(found) => found,
            // It reads names of a hub, and other file systems.
            Err(_) if begin.is_verl() => continue,
            Err(reason) => return Err(reason),
        };
        if !is_inner(model) {
            // Named in full: it is found where it is.
            continue;
        }
        let place = project.join(model);
        if place.exists() {
            continue;
        }
        let linked = std::fs::create_dir_all(place.parent().unwrap_or(&project))
            .and_then(|()| symlink(&found, &place));
        linked.map_err(|error| format!("cannot make {}: {error}", place.display()))?;
    }
    Ok(project)
}

/// Where a model lies that the experiment names and nobody sent.
fn find_model(model: &str, folder: Option<&str>) -> Result<PathBuf, String> {
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("."), PathBuf::from);
    let in_folder = folder.map(|folder| home.join(folder).join(model));
    // Without its owner's name, as `hf download` is mostly told to put it.
    let short = model.rsplit('/').next().unwrap_or(model);
    let by_name = folder.map(|folder| home.join(folder).join(short));
    let as_named = Path::new(model).is_absolute().then(|| PathBuf::from(model));
    let places: Vec<PathBuf> = [as_named, in_folder, by_name]
        .into_iter()
        .flatten()
        .collect();
    if let Some(found) = places
        .iter()
        .find(|path| path.join("config.json").is_file())
    {
        return Ok(found.clone());
    }
    let looked: Vec<String> = places
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let looked = if looked.is_empty() {
        "the target names no folder of models".to_owned()
    } else {
        format!("looked for {}", looked.join(", "))
    };
    Err(format!(
        "the model {model} is neither on your machine nor on this one ({looked}); fetch it here with \
         `hf download`, and name the folder it lies in as `models` in targets.yaml"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_found_by_its_path_or_in_the_folder_of_models_and_else_it_is_said_where_it_was_looked_for()
     {
        let root = tempfile::tempdir().unwrap();
        let models = root.path().join("models");
        std::fs::create_dir_all(models.join("Tiny")).unwrap();
        std::fs::write(models.join("Tiny/config.json"), "{}").unwrap();
        let folder = models.to_str();
        for name in ["Tiny", "owner/Tiny", models.join("Tiny").to_str().unwrap()] {
            assert_eq!(
                find_model(name, folder).unwrap(),
                models.join("Tiny"),
                "{name}"
            );
        }
        let error = find_model("Big", folder).unwrap_err();
        assert!(
            error.contains(models.join("Big").to_str().unwrap()),
            "{error}"
        );
        assert!(
            find_model("Big", None)
                .unwrap_err()
                .contains("`models` in targets.yaml")
        );
    }
}

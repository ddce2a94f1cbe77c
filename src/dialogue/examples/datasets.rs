//! Writes the shipped data sets and the tiny models' tokenizers again: `cargo run -p dialogue --example datasets -- .`

use std::path::Path;

use dialogue::data::write_parquet;
use dialogue::recipe::{SHIPPED, TinyModel, write_tiny};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    for shipped in SHIPPED {
        let rows = shipped.rows();
        let file = Path::new(&root).join("datasets").join(shipped.file);
        write_parquet(&rows, &file)?;
        println!("{}: {} rows", file.display(), rows.len());
    }
    for model in TinyModel::ALL {
        let directory = Path::new(&root)
            .join("experiments/models")
            .join(model.name());
        write_tiny(model, &directory)?;
        println!("{}", directory.display());
    }
    Ok(())
}
